//! Tests of RCU as a whole, with a guest made for them.

mod closed_forms;
mod guarantee;
mod guest;
mod style;
