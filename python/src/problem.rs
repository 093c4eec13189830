//! What goes wrong, as Python's exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use reprieve_study::scenario::BadScenario;

create_exception!(
    reprieve,
    ScenarioError,
    PyValueError,
    "A scenario cannot be run. `key` is the key at fault."
);
create_exception!(
    reprieve,
    SweepError,
    PyValueError,
    "A sweep's folder cannot be used. What has finished is kept, and the way out is in the text."
);

/// A scenario that cannot be run.
pub fn of_scenario(py: Python<'_>, bad: BadScenario) -> PyErr {
    let key = bad.key.clone();
    let error = ScenarioError::new_err(bad.to_string());
    match error.value(py).setattr("key", key) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// A sweep that cannot go on.
pub fn of_sweep(py: Python<'_>, error: reprieve_sweep::SweepError) -> PyErr {
    match error {
        reprieve_sweep::SweepError::Bad(bad) => of_scenario(py, bad),
        other => SweepError::new_err(other.to_string()),
    }
}
