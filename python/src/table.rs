//! A table for data frames: any library that knows Arrow's PyCapsule interface takes it without a copy in Python.
//!
//! Source: the Arrow PyCapsule interface (`__arrow_c_stream__`, a capsule named `arrow_array_stream`) and the Arrow C stream interface.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// The cells of a column; `None` is what was not measured.
pub enum Cells {
    /// Texts.
    Text(Vec<Option<String>>),
    /// Whole numbers.
    Whole(Vec<Option<i64>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
    /// True or false.
    Bool(Vec<Option<bool>>),
}

impl Cells {
    fn into_array(self) -> ArrayRef {
        match self {
            Cells::Text(cells) => Arc::new(StringArray::from(cells)),
            Cells::Whole(cells) => Arc::new(Int64Array::from(cells)),
            Cells::Number(cells) => Arc::new(Float64Array::from(cells)),
            Cells::Bool(cells) => Arc::new(BooleanArray::from(cells)),
        }
    }
}

/// A table of runs, one row each.
#[pyclass(frozen, module = "reprieve")]
pub struct Table(RecordBatch);

impl Table {
    /// Of columns of one length.
    ///
    /// # Errors
    /// They are not.
    pub fn of(columns: Vec<(String, Cells)>) -> PyResult<Table> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
            .into_iter()
            .map(|(name, cells)| {
                let array = cells.into_array();
                (Field::new(name, array.data_type().clone(), true), array)
            })
            .unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        batch.map(Table).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Table {
    /// Arrow's stream of the table, for pandas, polars, pyarrow and others.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface permits to ignore a wish that cannot be met.
        let _ = requested_schema;
        let batches = std::iter::once(Ok::<_, ArrowError>(self.0.clone()));
        let reader = RecordBatchIterator::new(batches, self.0.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<reprieve.Table of {} rows and {} columns>", self.0.num_rows(), self.0.num_columns())
    }
}
