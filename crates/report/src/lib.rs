//! What people see of a [`reprieve_study::Record`]: a table in the terminal, a page with figures, single
//! figures for documents, and a trace for the Perfetto viewer.
//!
//! Nothing here does I/O or computes a result: every function takes what `study` holds and returns text or
//! bytes. Words that several outputs share ([`facts`], [`table`], [`quantity`]) are made once.

pub mod causes;
pub mod facts;
pub mod figure;
pub mod grids;
pub mod headline;
pub mod holdouts;
pub mod html;
mod layout;
pub mod perfetto;
pub mod provision;
pub mod quantity;
pub mod recovery;
mod replays;
pub mod side_by_side;
pub mod stimuli;
pub mod surface;
pub mod sweeps;
pub mod table;
pub mod terminal;
