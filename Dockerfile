# The exact versions of requirements.lock, then the package itself:
#   docker build -t mile . && docker run --rm mile
FROM python:3.11-slim

RUN useradd --create-home --uid 1000 mile
WORKDIR /home/mile/app

COPY requirements.lock .
RUN pip install --no-cache-dir --disable-pip-version-check -r requirements.lock

# With a compiler the native kernel is built; without these lines the image is smaller and MILE slower.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

USER mile
ENTRYPOINT ["mile"]
CMD ["demo"]
