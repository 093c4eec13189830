//! The table as CSV (RFC 4180, with line feeds alone). A cell without a value is empty. Numbers have as many digits as it takes to read
//! the same number again.

use std::io::{self, BufWriter};

use tempfile::NamedTempFile;

use super::{Cell, Columns};

/// A table while it is written.
pub struct Table {
    to: csv::Writer<BufWriter<NamedTempFile>>,
    row: csv::StringRecord,
}

impl Table {
    pub fn begin(file: NamedTempFile, columns: &Columns) -> io::Result<Table> {
        let mut to = csv::Writer::from_writer(BufWriter::new(file));
        to.write_record(columns.all.iter().map(|column| &column.name))?;
        Ok(Table { to, row: csv::StringRecord::new() })
    }

    pub fn cell(&mut self, cell: Cell<'_>) {
        match cell {
            Cell::Nothing => self.row.push_field(""),
            Cell::Text(text) => self.row.push_field(text),
            Cell::Whole(number) => self.row.push_field(&number.to_string()),
            Cell::Number(number) => self.row.push_field(&format!("{number:?}")),
            Cell::Bool(value) => self.row.push_field(&value.to_string()),
        }
    }

    pub fn end_row(&mut self) -> io::Result<()> {
        self.to.write_record(&self.row)?;
        self.row.clear();
        Ok(())
    }

    pub fn end(self) -> io::Result<NamedTempFile> {
        let buffer =
            self.to.into_inner().map_err(|error| io::Error::new(error.error().kind(), error.to_string()))?;
        buffer.into_inner().map_err(|error| error.into_error())
    }
}
