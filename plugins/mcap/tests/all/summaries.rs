//! Summaries that contradict the file: what `sluice verify` says of them.

use crate::kit::{
    Fields, Folder, MAGIC, channel, chunk, fields, header, message, read, schema, source,
};

/// What a file with a summary may say wrongly.
struct SummarizedFile {
    /// The messages that the message index lists: times, and places in the chunk.
    indexed: Vec<(u64, u64)>,
    /// The channel of which the chunk index says that this is its index.
    indexed_channel: u16,
    /// How often the chunk index lists the chunk.
    entries: usize,
    counted: u64,
    topic: &'static str,
    /// How far from its place the index of attachments has the attachment; `None` for no index.
    attachment_shift: Option<u64>,
    attachment_crc: u32,
    /// The times of the attachment and the length of its data, by that index.
    attachment_fields: [u64; 3],
    /// What the statistics count.
    schemas: u16,
    /// What is added to the length of the message indexes that the chunk index names.
    more_indexes: u64,
    /// What is added to the kind, position and length of the group of channels.
    offset_shift: [u64; 3],
    /// What is added to where the footer says that these positions are; `None` if it does not.
    offsets_shift: Option<u64>,
}

/// The records of the only chunk, and where its messages are.
fn records() -> (Vec<u8>, Vec<(u64, u64)>) {
    let (mut records, mut places) = ([schema(1, "t"), channel(1, 1, "/a")].concat(), Vec::new());
    for time in 1..=3 {
        places.push((time, records.len() as u64));
        records.extend(message(1, 0, time, b"xyz"));
    }
    (records, places)
}

fn right() -> SummarizedFile {
    SummarizedFile {
        indexed: records().1,
        indexed_channel: 1,
        entries: 1,
        counted: 3,
        topic: "/a",
        attachment_shift: Some(0),
        attachment_crc: 0,
        attachment_fields: [2, 1, 3],
        schemas: 1,
        more_indexes: 0,
        offset_shift: [0; 3],
        offsets_shift: Some(0),
    }
}

fn array(content: Fields, values: Fields) -> Fields {
    content.bytes(&values.0)
}

impl SummarizedFile {
    fn bytes(&self) -> Vec<u8> {
        let (records, _) = records();
        let chunk = chunk(1, 3, &records);
        let chunk_at = header().len() as u64;
        let index_at = chunk_at + chunk.len() as u64;
        let pairs = self.indexed.iter().fold(fields(), |all, (time, at)| all.u64(*time).u64(*at));
        let index = array(fields().u16(1), pairs).record(7);
        let attachment = fields().u64(2).u64(1).bytes(b"note").bytes(b"text").u64(3).raw(b"abc");
        let attachment = attachment.u32(self.attachment_crc).record(9);
        let attachment_at = index_at + index.len() as u64;
        let data = [header(), chunk.clone(), index.clone(), attachment.clone()].concat();
        let data = [data, fields().u32(0).record(15)].concat();
        let offsets = fields().u16(self.indexed_channel).u64(index_at);
        let chunk_index = fields().u64(1).u64(3).u64(chunk_at).u64(chunk.len() as u64);
        let chunk_index = array(chunk_index, offsets).u64(index.len() as u64 + self.more_indexes);
        let len = records.len() as u64;
        let chunk_index = chunk_index.bytes(b"").u64(len).u64(len).record(8);
        let chunk_index = chunk_index.repeat(self.entries);
        let listed = self.attachment_shift.map(|shift| {
            let place = fields().u64(attachment_at + shift).u64(attachment.len() as u64);
            let times = self.attachment_fields.iter().fold(place, |all, field| all.u64(*field));
            times.bytes(b"note").bytes(b"text").record(10)
        });
        let counts = fields().u16(1).u64(self.counted);
        let statistics =
            fields().u64(self.counted).u16(self.schemas).u32(1).u32(1).u32(0).u32(1).u64(1);
        let statistics = array(statistics.u64(3), counts).record(11);
        let (schema, channel) = (schema(1, "t"), channel(1, 1, self.topic));
        let groups = [schema, channel, chunk_index, listed.unwrap_or_default(), statistics];
        let start = data.len() as u64;
        let (mut summary, mut offsets) = (Vec::new(), Vec::new());
        for group in groups.iter().filter(|group| !group.is_empty()) {
            let shift = if group[0] == 4 { self.offset_shift } else { [0; 3] };
            let place = [group[0].into(), start + summary.len() as u64, group.len() as u64];
            let [opcode, at, len] = [0, 1, 2].map(|field| place[field] + shift[field]);
            offsets.extend(fields().raw(&[opcode as u8]).u64(at).u64(len).record(14));
            summary.extend(group);
        }
        let offsets_at = start + summary.len() as u64;
        summary.extend(offsets);
        let footer = fields().u64(start);
        let footer = footer.u64(self.offsets_shift.map_or(0, |shift| offsets_at + shift));
        let hashed = [&summary[..], &[2], &20u64.to_le_bytes(), &footer.0].concat();
        let footer = footer.u32(crc32fast::hash(&hashed)).record(2);
        [&data[..], &summary, &footer, MAGIC].concat()
    }

    #[track_caller]
    fn expect(&self, expected: &[&str]) {
        let folder = Folder::new();
        let path = folder.write(&self.bytes());
        let faults = source(&path).faults(&path).unwrap();
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        let is_it = |(found, part): (&String, &&str)| found.contains(*part);
        assert!(faults.iter().zip(expected).all(is_it), "{faults:?}");
    }
}

#[test]
fn a_summary_that_agrees_with_the_file_has_no_faults() {
    right().expect(&[]);
    SummarizedFile { attachment_shift: None, ..right() }.expect(&[]);
}

#[test]
fn wrong_numbers_of_messages_are_a_fault() {
    SummarizedFile { counted: 99, ..right() }
        .expect(&["the statistics count 99 messages, but the file has 3"]);
}

#[test]
fn wrong_numbers_of_messages_are_no_damage_if_all_chunks_are_there() {
    for entries in [1, 2] {
        let found = read(&SummarizedFile { counted: 9, entries, ..right() }.bytes());
        assert_eq!((found.events.len(), found.damage), (3, vec![]), "{entries}");
    }
}

#[test]
fn message_indexes_that_do_not_list_the_messages_are_a_fault() {
    let wrong = "the message indexes of 1 of 1 chunks, first that at byte 29";
    let all = records().1;
    for indexed in [all[1..].to_vec(), vec![all[0], all[1], (2, all[2].1)]] {
        SummarizedFile { indexed, ..right() }.expect(&[wrong]);
    }
    let other = "the index names channel 2, which the summary lacks";
    SummarizedFile { indexed_channel: 2, ..right() }.expect(&[other, wrong]);
}

#[test]
fn a_channel_that_the_summary_declares_otherwise_is_a_fault() {
    SummarizedFile { topic: "/b", ..right() }.expect(&["the summary declares channel 1 otherwise"]);
}

#[test]
fn a_wrong_number_of_schemas_is_a_fault() {
    SummarizedFile { schemas: 2, ..right() }
        .expect(&["the statistics count 2 schemas, but the file has 1"]);
}

#[test]
fn a_wrong_length_of_message_indexes_is_a_fault() {
    let wrong = "the message indexes of 1 of 1 chunks, first that at byte 29";
    SummarizedFile { more_indexes: 1, ..right() }.expect(&[wrong]);
}

#[test]
fn an_attachment_that_the_index_describes_otherwise_is_a_fault() {
    for attachment_fields in [[3, 1, 3], [2, 0, 3], [2, 1, 4]] {
        SummarizedFile { attachment_fields, ..right() }
            .expect(&["attachment `note` has other names, times or lengths than the index says"]);
    }
}

#[test]
fn wrong_offsets_of_groups_of_records_are_a_fault() {
    let wrong = "1 of 5 summary offsets do not name all records of a kind: first that of";
    for (offset_shift, kind) in
        [([1, 0, 0], "Message"), ([0, 1, 0], "Channel"), ([0, 0, 1], "Channel")]
    {
        SummarizedFile { offset_shift, ..right() }.expect(&[&format!("{wrong} {kind} records")]);
    }
    SummarizedFile { offsets_shift: Some(1), ..right() }
        .expect(&["the footer says that summary offsets are at byte"]);
    SummarizedFile { offsets_shift: None, ..right() }.expect(&[]);
}

#[test]
fn attachments_are_verified_where_they_are() {
    let checksum = "attachment `note`: expected the checksum 0000007b";
    let crc =
        |attachment_shift| SummarizedFile { attachment_crc: 123, attachment_shift, ..right() };
    crc(Some(0)).expect(&[checksum]);
    crc(None).expect(&[checksum]);
    let place = "attachment `note` is not where the index says";
    crc(Some(7)).expect(&[checksum, place, "1 of 1 (attachment) are missing"]);
}
