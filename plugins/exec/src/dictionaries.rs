//! The dictionaries of a stream, as far as a column that is read needs them, in bounded memory. Reads no rows.

use std::collections::{BTreeMap, HashMap};

use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_buffer::Buffer;
use arrow_ipc::reader::read_dictionary;
use arrow_ipc::{DictionaryBatch, MetadataVersion};
use arrow_schema::{DataType, Schema};
use arrow_select::concat::concat;

use crate::columns::StreamLayout;
use crate::wire::fits;

/// How many bytes of a stream the words that are known at a time may take together. More than a run's channels
/// may have, of which they speak.
pub(crate) const MAX_DICTIONARY_BYTES: usize = 64 << 20;

/// The words of the columns that are read.
#[derive(Debug, Default)]
pub(crate) struct Dictionaries {
    /// The columns that have one, each alone, by its number.
    columns: BTreeMap<i64, (Schema, DataType)>,
    whole: HashMap<i64, ArrayRef>,
    /// What was added to those that are whole. It is put behind them when rows come: not for every word.
    added: BTreeMap<i64, Vec<ArrayRef>>,
    /// How many bytes of the stream each takes.
    bytes: BTreeMap<i64, usize>,
}

impl Dictionaries {
    /// Those of a stream of that form; none has a word yet.
    pub(crate) fn for_layout(layout: &StreamLayout) -> Self {
        let read = layout.places.iter().filter_map(|place| layout.schema.fields().get(*place));
        let columns = read.filter_map(|field| {
            let DataType::Dictionary(_, words) = field.data_type() else { return None };
            #[expect(
                deprecated,
                reason = "there is no other way to know of which column words are"
            )]
            let number = field.dict_id()?;
            Some((number, (Schema::new(vec![field.clone()]), (**words).clone())))
        });
        Self { columns: columns.collect(), ..Self::default() }
    }

    /// Takes the words that a message has which is described by `about` bytes. Those of columns that are not
    /// read are left alone.
    pub(crate) fn take(
        &mut self,
        message: DictionaryBatch<'_>,
        about: usize,
        body: &Buffer,
        version: MetadataVersion,
    ) -> Result<(), String> {
        let number = message.id();
        let Some((column, kind)) = self.columns.get(&number) else { return Ok(()) };
        fits(&message.data().ok_or("a dictionary without words")?, body.len())?;
        let before = self.bytes.entry(number).or_default();
        *before = about + body.len() + if message.isDelta() { *before } else { 0 };
        if self.bytes.values().sum::<usize>() > MAX_DICTIONARY_BYTES {
            return Err(format!(
                "its dictionaries have more than {MAX_DICTIONARY_BYTES} bytes of words together; write columns of plain \
                 text"
            ));
        }
        let mut words = HashMap::new();
        if message.isDelta() {
            if !self.whole.contains_key(&number) {
                return Err("words for a dictionary that is not there".into());
            }
            words.insert(number, new_empty_array(kind));
        }
        read_dictionary(body, message, column, &mut words, &version)
            .map_err(|e| format!("a dictionary of its Arrow stream is wrong: {e}"))?;
        let words = words.remove(&number).ok_or("a dictionary that has no words")?;
        if message.isDelta() {
            self.added.entry(number).or_default().push(words);
        } else {
            self.added.remove(&number);
            self.whole.insert(number, words);
        }
        Ok(())
    }

    /// Each with all its words.
    pub(crate) fn whole(&mut self) -> Result<&HashMap<i64, ArrayRef>, String> {
        for (number, added) in std::mem::take(&mut self.added) {
            let Some(whole) = self.whole.get_mut(&number) else { continue };
            let mut parts: Vec<&dyn Array> = vec![&**whole];
            parts.extend(added.iter().map(|part| &**part));
            let joined = concat(&parts);
            *whole = joined.map_err(|e| format!("a dictionary cannot be added to: {e}"))?;
        }
        Ok(&self.whole)
    }
}
