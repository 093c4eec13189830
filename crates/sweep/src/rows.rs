//! The rows of a sweep, finished or not, for whoever looks at them without a table.

use crate::found::Found;
use crate::part::Ended;
use crate::plan::Entry;
use crate::{Plan, Result};

/// Gives each finished row to a function, in the order of the IDs. Returns how many rows are missing. `go_on` is asked now and then.
///
/// # Errors
/// That of `go_on`, or as of [`Found::read`].
pub fn each(plan: &Plan, go_on: &dyn Fn() -> Result, give: &mut dyn FnMut(&Entry, &Ended)) -> Result<u64> {
    let index = plan.index()?;
    let found = Found::read(plan, &|_| true, &mut |_| go_on())?;
    let (mut entries, mut missing) = (plan.entries()?, 0);
    for row in index {
        match found.place(row.0) {
            Some(place) => {
                go_on()?;
                give(&entries.at(row)?, &found.outcome(place)?.ended);
            }
            None => missing += 1,
        }
    }
    Ok(missing)
}
