//! A recorded study, and the views on it that tables and figures need.

pub mod given_back;
pub mod grid;
pub mod paired;
pub mod record;
pub mod replays;
pub mod swept;
