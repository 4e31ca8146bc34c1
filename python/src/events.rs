//! Events for Python: views of batches, whose payloads are not copied.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use arrow_buffer::ScalarBuffer;
use crossbeam_channel::{Sender, bounded};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PySlice, PyString};
use pyo3_arrow::buffer::PyArrowBuffer;
use sluice::embedded::EventForm;
use sluice_model::{
    Batch, ChannelId, Channels, DynSink, Error, ErrorKind, PrepareContext, Sink, SinkContext,
    SinkTraits, Written,
};

use crate::findings::Reporting;
use crate::running::{Delivery, Resources, SharedDelivery, turn};
use crate::{errors, log_run};

/// Batches that wait for the consumer.
const WAITING: usize = 4;
/// Payloads up to this length are stored in the view itself.
const INLINE: u32 = 12;
const VIEW_LEN: usize = size_of::<u128>();

/// A batch with its channels.
type EventBatch = (Batch, Arc<Channels>);

/// A sink that sends batches as they are.
struct EventSink(Sender<EventBatch>);

impl Sink for EventSink {
    type Block = Batch;
    type Unit = Batch;
    type Output = Arc<Channels>;

    fn traits(&self) -> SinkTraits {
        SinkTraits { rows_unwritten: None, ..SinkTraits::default() }
    }

    fn open(&self, context: &SinkContext) -> Result<Arc<Channels>, Error> {
        Ok(Arc::clone(&context.channels))
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Batch, Error> {
        Ok(batch.with_rows(Vec::new()))
    }

    fn write(&self, channels: &mut Arc<Channels>, batch: Batch) -> Result<Written, Error> {
        let events = batch.len() as u64;
        if events > 0 {
            let sent = self.0.send((batch, Arc::clone(channels)));
            sent.map_err(|_| ErrorKind::Interrupted)?;
        }
        Ok(Written::events(events))
    }

    fn finish(&self, _: Arc<Channels>) -> Result<Written, Error> {
        Ok(Written::default())
    }
}

/// The events of a log, in order.
#[pyclass(frozen, module = "sluice._native")]
pub(crate) struct EventIterator {
    delivery: SharedDelivery<EventBatch>,
    reporting: Reporting,
    /// Held by the thread that takes an event.
    cursor: Mutex<Cursor>,
}

/// The place of an iterator.
#[derive(Default)]
struct Cursor {
    current: Option<Arc<BatchView>>,
    next: usize,
    /// The names and sources of channels, by id.
    labels: Vec<Option<Arc<ChannelLabel>>>,
}

impl EventIterator {
    pub(crate) fn start(
        py: Python<'_>,
        arguments: &[OsString],
        resources: Resources,
        strict: bool,
    ) -> PyResult<Self> {
        let (sender, batches) = bounded(WAITING);
        let sink = DynSink::new(EventSink(sender));
        let pipeline = log_run::pipeline(py, arguments, EventForm::Payloads, sink, strict)?;
        let delivery = Delivery::start(pipeline, batches, resources);
        let delivery = delivery.map_err(|error| errors::from_error(py, &error))?;
        let delivery = SharedDelivery::new(delivery);
        let reporting = Reporting { strict, reports_names: true, notes_undecoded: true };
        Ok(Self { delivery, reporting, cursor: Mutex::default() })
    }
}

impl Cursor {
    /// The next event of the current batch.
    fn next_event(&mut self) -> Option<Event> {
        let view = self.current.as_ref().filter(|view| self.next < view.batch.len())?;
        let event = Event { view: Arc::clone(view), row: self.next };
        self.next += 1;
        Some(event)
    }

    /// The view of a batch.
    fn view(&mut self, py: Python<'_>, (batch, channels): &EventBatch) -> PyResult<BatchView> {
        let payloads = batch.payload_column();
        let payloads = payloads.map_err(|error| crate::errors::from_error(py, &error))?;
        let buffers = payloads.data_buffers().iter().chain([payloads.views().inner()]);
        let memory = buffers.map(|buffer| {
            let buffer = Bound::new(py, PyArrowBuffer::new(buffer.clone()))?;
            Ok(PyMemoryView::from(buffer.as_any())?.unbind())
        });
        let memory = memory.collect::<PyResult<Vec<_>>>()?;
        for id in batch.channels() {
            let place = *id as usize;
            if self.labels.len() <= place {
                self.labels.resize(place + 1, None);
            }
            if let Some(label @ None) = self.labels.get_mut(place) {
                let channel = channels.get(ChannelId(*id));
                let text = |text: &str| PyString::new(py, text).unbind();
                let (name, source) = (text(channel.name.text()), text(&channel.source));
                *label = Some(Arc::new(ChannelLabel { name, source }));
            }
        }
        let views = payloads.views().clone();
        Ok(BatchView { batch: batch.clone(), views, memory, labels: self.labels.clone() })
    }
}

#[pymethods]
impl EventIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        let mut cursor = turn(&self.cursor)?;
        loop {
            if let Some(event) = cursor.next_event() {
                return Ok(Some(event));
            }
            // Events keep their block alive: not this one while the next is waited for.
            cursor.current = None;
            let batch = match self.delivery.next(py)? {
                Some(Ok(batch)) => batch,
                Some(Err(ended)) => {
                    drop(cursor);
                    return self.reporting.report(py, &ended, 1).map(|()| None);
                }
                None => return Ok(None),
            };
            let view = cursor.view(py, &batch)?;
            (cursor.current, cursor.next) = (Some(Arc::new(view)), 0);
        }
    }

    /// Ends the run, and the wait of a thread for the next event.
    fn close(&self, py: Python<'_>) {
        self.delivery.close(py);
        // A thread that waits finds out by itself.
        if let Ok(mut cursor) = turn(&self.cursor) {
            cursor.current = None;
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an iterator over events cannot be pickled: open the log where the events are needed",
        ))
    }
}

/// A batch, and its memory for Python.
struct BatchView {
    batch: Batch,
    views: ScalarBuffer<u128>,
    /// Its segments, and last the views, which hold short payloads.
    memory: Vec<Py<PyMemoryView>>,
    labels: Vec<Option<Arc<ChannelLabel>>>,
}

struct ChannelLabel {
    name: Py<PyString>,
    source: Py<PyString>,
}

/// One event. Keeps the block of the log that its payload lies in.
#[pyclass(frozen, module = "sluice._native")]
pub(crate) struct Event {
    view: Arc<BatchView>,
    row: usize,
}

impl Event {
    fn label(&self) -> PyResult<&ChannelLabel> {
        let id = self.view.batch.channels().get(self.row);
        let label = id.and_then(|id| self.view.labels.get(*id as usize)?.as_deref());
        label.ok_or_else(crate::errors::lost_thread)
    }

    /// Where its payload lies: the place in `memory`, and the range there.
    fn place(&self) -> (usize, usize, usize) {
        let view = self.view.views.get(self.row).copied().unwrap_or_default();
        let len = view as u32;
        let (segment, start) = if len <= INLINE {
            (self.view.memory.len() - 1, self.row * VIEW_LEN + size_of::<u32>())
        } else {
            ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize)
        };
        (segment, start, start + len as usize)
    }
}

#[pymethods]
impl Event {
    /// Nanoseconds since the Unix epoch, or since the start of the log if its clock is relative.
    #[getter]
    fn timestamp(&self) -> i64 {
        self.view.batch.timestamps().get(self.row).copied().unwrap_or_default()
    }

    /// The number that its origin assigned.
    #[getter]
    fn sequence(&self) -> i64 {
        self.view.batch.sequences().get(self.row).copied().unwrap_or_default()
    }

    /// The channel.
    #[getter]
    fn channel(&self, py: Python<'_>) -> PyResult<Py<PyString>> {
        Ok(self.label()?.name.clone_ref(py))
    }

    /// The source.
    #[getter]
    fn source(&self, py: Python<'_>) -> PyResult<Py<PyString>> {
        Ok(self.label()?.source.clone_ref(py))
    }

    /// The payload, a view of the memory that the log was read into.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (segment, start, end) = self.place();
        let memory = self.view.memory.get(segment).ok_or_else(crate::errors::lost_thread)?;
        let range = PySlice::new(py, start as isize, end as isize, 1);
        memory.bind(py).as_any().get_item(range)
    }

    /// The length of the payload.
    fn __len__(&self) -> usize {
        let (_, start, end) = self.place();
        end - start
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.label()?.name.bind(py).repr()?;
        let (time, sequence, len) = (self.timestamp(), self.sequence(), self.__len__());
        Ok(format!("Event(channel={name}, timestamp={time}, sequence={sequence}, {len} bytes)"))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an event is a view of its log and cannot be pickled: take what is needed, such as \
             bytes(event.payload)",
        ))
    }
}
