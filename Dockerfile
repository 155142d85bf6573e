# The exact versions of requirements.lock, then the package itself:
#   docker build -t mile . && docker run --rm mile
FROM python:3.11-slim

RUN useradd --create-home --uid 1000 mile
WORKDIR /home/mile/app

COPY requirements.lock .
RUN pip install --no-cache-dir --disable-pip-version-check -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

COPY examples examples
USER mile
CMD ["python", "examples/demo.py"]
