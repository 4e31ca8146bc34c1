//! The dictionaries of a stream, for the columns that are read, in bounded memory.

use std::collections::{BTreeMap, HashMap};

use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_buffer::Buffer;
use arrow_ipc::reader::read_dictionary;
use arrow_ipc::{DictionaryBatch, MetadataVersion};
use arrow_schema::{DataType, Schema};
use arrow_select::concat::concat;

use crate::columns::StreamLayout;
use crate::wire::fits;

/// The maximum size of all dictionaries at a time. More than the channels of a run may take.
pub(crate) const MAX_DICTIONARY_BYTES: usize = 64 << 20;

/// The dictionaries of the columns that are read.
#[derive(Debug, Default)]
pub(crate) struct Dictionaries {
    /// The columns with a dictionary, each in a schema of its own, by dictionary id.
    columns: BTreeMap<i64, (Schema, DataType)>,
    whole: HashMap<i64, ArrayRef>,
    /// Deltas, appended when rows arrive rather than one by one.
    added: BTreeMap<i64, Vec<ArrayRef>>,
    /// The size of each in the stream.
    bytes: BTreeMap<i64, usize>,
}

impl Dictionaries {
    /// Empty dictionaries for a stream with this layout.
    pub(crate) fn for_layout(layout: &StreamLayout) -> Self {
        let read = layout.places.iter().filter_map(|place| layout.schema.fields().get(*place));
        let columns = read.filter_map(|field| {
            let DataType::Dictionary(_, words) = field.data_type() else { return None };
            #[expect(
                deprecated,
                reason = "there is no other way to find the column of a dictionary"
            )]
            let number = field.dict_id()?;
            Some((number, (Schema::new(vec![field.clone()]), (**words).clone())))
        });
        Self { columns: columns.collect(), ..Self::default() }
    }

    /// Reads a dictionary batch whose metadata has `about` bytes. Skips columns that are not read.
    pub(crate) fn take(
        &mut self,
        message: DictionaryBatch<'_>,
        about: usize,
        body: &Buffer,
        version: MetadataVersion,
    ) -> Result<(), String> {
        let number = message.id();
        let Some((column, kind)) = self.columns.get(&number) else { return Ok(()) };
        fits(&message.data().ok_or("a dictionary without values")?, body.len())?;
        let before = self.bytes.entry(number).or_default();
        *before = about + body.len() + if message.isDelta() { *before } else { 0 };
        if self.bytes.values().sum::<usize>() > MAX_DICTIONARY_BYTES {
            return Err(format!(
                "its dictionaries have more than {MAX_DICTIONARY_BYTES} bytes in total; write \
                 columns of plain text"
            ));
        }
        let mut words = HashMap::new();
        if message.isDelta() {
            if !self.whole.contains_key(&number) {
                return Err("a delta for a dictionary that does not exist".into());
            }
            words.insert(number, new_empty_array(kind));
        }
        read_dictionary(body, message, column, &mut words, &version)
            .map_err(|e| format!("a dictionary of its Arrow stream is invalid: {e}"))?;
        let words = words.remove(&number).ok_or("a dictionary without values")?;
        if message.isDelta() {
            self.added.entry(number).or_default().push(words);
        } else {
            self.added.remove(&number);
            self.whole.insert(number, words);
        }
        Ok(())
    }

    /// The complete dictionaries.
    pub(crate) fn whole(&mut self) -> Result<&HashMap<i64, ArrayRef>, String> {
        for (number, added) in std::mem::take(&mut self.added) {
            let Some(whole) = self.whole.get_mut(&number) else { continue };
            let mut parts: Vec<&dyn Array> = vec![&**whole];
            parts.extend(added.iter().map(|part| &**part));
            let joined = concat(&parts);
            *whole = joined.map_err(|e| format!("the delta of a dictionary does not fit: {e}"))?;
        }
        Ok(&self.whole)
    }
}
