//! The Python package `reprieve`: the simulator, its records, and sweeps, without the command.
//!
//! Nothing here holds the interpreter's lock while it simulates, and Ctrl-C ends every wait: see [`wait`].

mod problem;
mod record;
mod sweep;
mod table;
mod wait;

use pyo3::prelude::*;

/// Functions that the Python part of the package is written with.
#[pymodule(gil_used = false)]
fn _reprieve(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("ScenarioError", module.py().get_type::<problem::ScenarioError>())?;
    module.add("SweepError", module.py().get_type::<problem::SweepError>())?;
    module.add_class::<table::Table>()?;
    module.add_class::<record::Record>()?;
    for function in [
        wrap_pyfunction!(record::run, module)?,
        wrap_pyfunction!(record::load, module)?,
        wrap_pyfunction!(record::scenarios, module)?,
        wrap_pyfunction!(record::text, module)?,
        wrap_pyfunction!(record::conditions, module)?,
        wrap_pyfunction!(sweep::plan, module)?,
        wrap_pyfunction!(sweep::run_shard, module)?,
        wrap_pyfunction!(sweep::standing, module)?,
        wrap_pyfunction!(sweep::merge, module)?,
        wrap_pyfunction!(sweep::table, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
