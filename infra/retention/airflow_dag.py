"""A sweep of the archive's retention, each night, for Apache Airflow 3."""

import datetime as dt

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="archiver_retention",
    description="Delete from the archive what topics keep no longer",
    schedule="20 3 * * *",
    start_date=dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
    catchup=False,  # a sweep makes up for all that were missed
    max_active_runs=1,
    tags=["kafka", "archive"],
) as dag:
    BashOperator(
        task_id="sweep",
        bash_command="archiver retention -c /etc/archiver/archive.yaml --log-format json",
        append_env=True,  # credentials of the sweep's role: infra/policies/sweep.json
        execution_timeout=dt.timedelta(hours=6),
        retries=2,
    )
