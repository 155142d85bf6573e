"""The data sets of the paper: one entry each, with what its file holds and where it is published.

Columns, rows and classes are those of the sources; classes are counted from 0. What a download is compared with was
computed from copies of the tables that agree with a second, independent copy.
"""

from mile.datasets._kinds import ImageSet, TableSet, TextSet
from mile.datasets._origins import Closely, Exactly, OpenML, Reviews, Uci


def _numbered(name: str, last: int, form: str = "") -> tuple[str, ...]:
    return tuple(f"{name}{number:{form}}" for number in range(1, last + 1))


_WINE = (
    *("fixed_acidity", "volatile_acidity", "citric_acid", "residual_sugar", "chlorides", "free_sulfur_dioxide"),
    *("total_sulfur_dioxide", "density", "pH", "sulphates", "alcohol", "quality"),
)

SETS: dict[str, TableSet | ImageSet | TextSet] = {
    "airfoil": TableSet(
        columns=(
            *("frequency", "angle_of_attack", "chord_length", "free_stream_velocity"),
            *("suction_side_displacement_thickness", "scaled_sound_pressure_level"),
        ),
        n_rows=1_503,
        origin=Uci(
            archive="291/airfoil+self+noise", members=("airfoil_self_noise.dat",), delimiter=None, classes=False
        ),
        content=Exactly("11fab2c660f61031935f9995d27929df39a175d3551271b397c8aa254b19b6b6"),
    ),
    "bikesharing": TableSet(
        columns=(
            *("instant", "yr", "mnth", "hr", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum"),
            *("windspeed", "cnt"),
        ),
        n_rows=17_379,
        # As in the paper's code: with the running number `instant`, without date, season and the two parts of the sum.
        origin=Uci(
            archive="275/bike+sharing+dataset",
            members=("hour.csv",),
            header=True,
            columns=(0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16),
            classes=False,
        ),
        content=Exactly("d0dcec10790601a1fd16440dd02fe92d36fe55b4e88ade93744cf2fce348fef0"),
    ),
    "concrete": TableSet(
        columns=(
            *("cement", "blast_furnace_slag", "fly_ash", "water", "superplasticizer", "coarse_aggregate"),
            *("fine_aggregate", "age", "compressive_strength"),
        ),
        n_rows=1_030,
        origin=OpenML(44959),  # UCI has this table and the next one as Excel sheets only
        content=Closely((281.166, 73.8955, 54.1871, 181.566, 6.20311, 972.919, 773.579, 45.6621, 35.8178)),
    ),
    "energy": TableSet(
        columns=(
            *("relative_compactness", "surface_area", "wall_area", "roof_area", "overall_height", "orientation"),
            *("glazing_area", "glazing_area_distribution", "heating_load"),
        ),
        n_rows=768,
        origin=OpenML(44960),
        content=Closely((0.764167, 671.708, 318.5, 176.604, 5.25, 3.5, 0.234375, 2.8125, 22.3072)),
    ),
    "protein": TableSet(
        columns=(*_numbered("F", 9), "RMSD"),
        n_rows=45_730,
        origin=Uci(
            archive="265/physicochemical+properties+of+protein+tertiary+structure",
            members=("CASP.csv",),
            header=True,
            columns=(1, 2, 3, 4, 5, 6, 7, 8, 9, 0),
            classes=False,
        ),
        # Copies of this table differ in the digits of F5.
        content=Closely(
            (9871.6, 3017.37, 0.302392, 103.492, 1_368_300.0, 145.638, 3989.76, 69.9751, 34.5237, 7.74853),
        ),
    ),
    "yacht": TableSet(
        columns=(
            *("longitudinal_position", "prismatic_coefficient", "length_displacement_ratio", "beam_draught_ratio"),
            *("length_beam_ratio", "froude_number", "residuary_resistance"),
        ),
        n_rows=308,
        origin=Uci(
            archive="243/yacht+hydrodynamics", members=("yacht_hydrodynamics.data",), delimiter=None, classes=False
        ),
        content=Exactly("ec08588637fd93582116a1ead33f0c1e787dae755168073608e030e5282a3f4e"),
    ),
    "ionosphere": TableSet(
        columns=(*_numbered("a", 34, "02"), "class"),
        n_rows=351,
        n_classes=2,
        origin=Uci(archive="52/ionosphere", members=("ionosphere.data",)),
        content=Exactly("0668807f0d59342e16e18ff8957bea313b3ab896893357b3a32dc21e0b1e14a4"),
    ),
    "income": TableSet(
        columns=(
            *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation"),
            *("relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country"),
            "income",
        ),
        n_rows=48_842,
        n_classes=2,
        origin=Uci(archive="2/adult", members=("adult.data", "adult.test")),
        content=Exactly("7d1649972946a1d2f0772f9130b99d6262033bc73fb452bf8127c914eb5833c0"),
    ),
    "sonar": TableSet(
        columns=(*_numbered("band", 60, "02"), "class"),
        n_rows=208,
        n_classes=2,
        origin=Uci(archive="151/connectionist+bench+sonar+mines+vs+rocks", members=("sonar.all-data",)),
        content=Exactly("2d5058ebc1aca3c38b428ee0f775c8575b2c0573b3bef4f61cc3c5fc2ad074e4"),
    ),
    "wine_white": TableSet(
        columns=_WINE,
        n_rows=4_898,
        n_classes=7,
        origin=Uci(archive="186/wine+quality", members=("winequality-white.csv",), delimiter=";", header=True),
        content=Exactly("a3fbca9fa0d7f4e434a7b3974a117158cf82a45d81f75f7c01319b8f6ebf4a60"),
    ),
    "wine_red": TableSet(
        columns=_WINE,
        n_rows=1_599,
        n_classes=6,
        origin=Uci(archive="186/wine+quality", members=("winequality-red.csv",), delimiter=";", header=True),
        content=Exactly("c8b4a95a2c6b0eb5885e21315513919072362e3e47c582d061ccaf398f3537a1"),
    ),
    "australian": TableSet(
        columns=(*_numbered("A", 14), "class"),
        n_rows=690,
        n_classes=2,
        origin=Uci(archive="143/statlog+australian+credit+approval", members=("australian.dat",), delimiter=None),
        content=Exactly("31f7d2e7692d5104af56da9932714e0b15cef630655e02ce16cef97255297ca8"),
    ),
    "heart": TableSet(
        columns=(
            *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca"),
            *("thal", "num"),
        ),
        n_rows=303,
        n_classes=5,
        # Six missing values are 0, as in the paper's code.
        origin=Uci(archive="45/heart+disease", members=("processed.cleveland.data",), question_mark="0"),
        content=Exactly("73f3f58b3692e7a8bc9a21544efe94316d1909388617b6ac6874f51c9f898014"),
    ),
    "glass": TableSet(
        columns=("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe", "type"),
        n_rows=214,
        n_classes=6,
        origin=Uci(archive="42/glass+identification", members=("glass.data",), columns=tuple(range(1, 11))),
        content=Exactly("745f2a58d4d04a2f687d308ca6744697f1427bfa1614b07f2dc15f5d2ba7faef"),
    ),
    "covertype8000": TableSet(
        columns=(
            *("Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology"),
            *("Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm"),
            *("Horizontal_Distance_To_Fire_Points", *_numbered("Wilderness_Area", 4), *_numbered("Soil_Type", 40)),
            "Cover_Type",
        ),
        n_rows=8_000,
        n_classes=7,
        origin=Uci(archive="31/covertype", members=("covtype.data.gz",), n_drawn=8_000),
        content=Exactly("8b505072a34eb064518cb3e762dc64d1ad8be45509716c86519650323eaa641e"),
    ),
    "mnist": ImageSet(
        n_train=60_000,
        n_test=10_000,
        shape=(28, 28),
        n_classes=10,
        origin=OpenML(554),
        sums=(1_567_298_545, 267_236, 264_923_200, 44_434),
    ),
    "fashion_mnist": ImageSet(
        n_train=60_000,
        n_test=10_000,
        shape=(28, 28),
        n_classes=10,
        origin=OpenML(40996),
        sums=(3_431_114_169, 270_000, 573_469_082, 45_000),
    ),
    "imdb": TextSet(
        n_train=25_000,
        n_test=25_000,
        n_classes=2,
        origin=Reviews(
            url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            checksum="sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
        ),
    ),
}
