"""Time and scores of MILE on growing parts of protein.

Usage: python experiments/datasize/run.py --data-dir FOLDER

The row `law` needs the run directories of all sizes; it is written once they are there.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import load
from campaign import Work, main
from catalog import find
from scaling_study import COLUMNS, ScalingStudy

STUDY = ScalingStudy(experiment=find("datasize"), size="training_rows", label="training rows")
WORK = Work(measure=STUDY.measure, columns=COLUMNS, load=load, is_fitted=STUDY.is_fitted, draw=STUDY.draw)

if __name__ == "__main__":
    main(__file__, WORK)
