//! A recorded study, and the views on it that tables and figures need.

pub mod grid;
pub mod paired;
pub mod record;
pub mod regained;
pub mod replays;
pub mod surface;
pub mod swept;
