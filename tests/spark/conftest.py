"""Spark sessions for tests. `spark_avro` reads Avro with Java's own reader: the proof that others can open our files."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

JARS = Path(__file__).parents[2] / ".cache" / "spark-jars"
FETCH_SECONDS = 180


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the socket of every collect() to the garbage collector: no error here, but everywhere else."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark_avro() -> Iterator[SparkSession]:
    """A session with spark-avro: `spark_avro.read.format("avro").load(directory)` on a bare local directory."""
    jar = spark_avro_jar()
    session = (
        SparkSession.builder.master("local[1]")
        .appName("kafka-archiver tests")
        .config("spark.jars", str(jar))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


def spark_avro_jar() -> Path:
    """The jar that matches the installed PySpark, fetched once with the Ivy that PySpark carries."""
    jar = JARS / f"spark-avro_2.13-{pyspark.__version__}.jar"
    if not jar.exists():
        if shutil.which("java") is None:
            pytest.skip("java is not on the PATH")
        fetch(jar)
    return jar


def fetch(jar: Path) -> None:
    # Everything that spark-avro depends on is in PySpark's own folder.
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = ["java", f"-Divy.default.ivy.user.dir={JARS / 'ivy'}", "-jar", str(ivy), "-notransitive"]
    command += ["-dependency", "org.apache.spark", "spark-avro_2.13", pyspark.__version__, "-confs", "default"]
    command += ["-retrieve", f"{JARS}/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    if not jar.exists():
        pytest.skip(f"{jar.name} could not be fetched: {done.stdout[-2000:]}{done.stderr[-2000:]}")
