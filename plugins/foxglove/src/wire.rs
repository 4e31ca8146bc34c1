//! The wire format of protobuf: appends fields to a buffer. Knows no message.

/// Appends the fields of one message. Fields with their default value are left out, as in proto3.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter {
    bytes: Vec<u8>,
}

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

impl MessageWriter {
    /// An empty message with room for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// The bytes of the message.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.raw_varint(field << 3 | wire_type);
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// An integer or an enum value.
    pub(crate) fn varint(&mut self, field: u64, value: i64) {
        if value != 0 {
            self.tag(field, VARINT);
            self.raw_varint(value as u64);
        }
    }

    pub(crate) fn fixed32(&mut self, field: u64, value: u32) {
        if value != 0 {
            self.tag(field, FIXED32);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(crate) fn double(&mut self, field: u64, value: f64) {
        if value.to_bits() != 0 {
            self.present_double(field, value);
        }
    }

    /// A double of a field that distinguishes zero from absent.
    pub(crate) fn present_double(&mut self, field: u64, value: f64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A packed list of doubles.
    pub(crate) fn doubles(&mut self, field: u64, values: impl ExactSizeIterator<Item = f64>) {
        if values.len() == 0 {
            return;
        }
        self.tag(field, LENGTH);
        self.raw_varint(8 * values.len() as u64);
        for value in values {
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(crate) fn bytes(&mut self, field: u64, value: &[u8]) {
        if !value.is_empty() {
            self.tag(field, LENGTH);
            self.raw_varint(value.len() as u64);
            self.bytes.extend_from_slice(value);
        }
    }

    pub(crate) fn text(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// A message, also if it is empty: an absent message is not the same as one of zeros.
    pub(crate) fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.tag(field, LENGTH);
        self.raw_varint(inner.bytes.len() as u64);
        self.bytes.extend_from_slice(&inner.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_specification_has_them() {
        let mut message = MessageWriter::default();
        message.varint(1, 150);
        message.text(2, "testing");
        message.message(3, |inner| inner.varint(1, -1));
        message.fixed32(4, 7);
        message.doubles(5, [1.0].into_iter());
        message.message(6, |_| ());
        let expected: &[&[u8]] = &[
            b"\x08\x96\x01",
            b"\x12\x07testing",
            b"\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x25\x07\0\0\0",
            b"\x2a\x08\0\0\0\0\0\0\xf0\x3f",
            b"\x32\x00",
        ];
        assert_eq!(message.finish(), expected.concat());
    }

    #[test]
    fn defaults_are_left_out() {
        let mut message = MessageWriter::default();
        message.varint(1, 0);
        message.fixed32(2, 0);
        message.double(3, 0.0);
        message.doubles(4, [].into_iter());
        message.text(5, "");
        assert!(message.finish().is_empty());
        let mut message = MessageWriter::default();
        message.double(1, -0.0);
        assert_eq!(message.finish().len(), 9);
    }
}
