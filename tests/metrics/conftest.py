from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run a quiet Spark of two threads, in a separate folder."""
    from pyspark.sql import SparkSession

    folder: Path = tmp_path_factory.mktemp("spark")
    (folder / "log4j2.properties").write_text("rootLogger.level = off\n")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    options = f"-Dlog4j2.configurationFile={folder}/log4j2.properties -Dderby.system.home={folder}"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pasto tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", options)
        .getOrCreate()
    )
    yield session
    session.stop()
