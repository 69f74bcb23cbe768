//! D-Bus messages as bytes, as far as the four calls and the signal need them.

/// The peer is on this machine, so both sides write in its byte order.
pub(super) const ENDIAN: u8 = if cfg!(target_endian = "big") { b'B' } else { b'l' };

/// The serial of the call to the manager; those to the bus itself count up from 1.
pub(super) const MANAGER_CALL: u32 = 9;

pub(super) const REPLY: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const SIGNAL: u8 = 4;

/// Marshals values; alignment counts from the start of the buffer.
#[derive(Default)]
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    pub(super) fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.align(8);
        self.0.extend(value.to_ne_bytes());
    }

    pub(super) fn string(&mut self, value: &str) {
        self.u32(value.len() as u32);
        self.0.extend(value.as_bytes());
        self.0.push(0);
    }

    pub(super) fn signature(&mut self, value: &str) {
        self.0.push(value.len() as u8);
        self.0.extend(value.as_bytes());
        self.0.push(0);
    }

    /// The length counts neither itself nor the padding before the first element.
    pub(super) fn array(&mut self, element_align: usize, fill: impl FnOnce(&mut Self)) {
        self.u32(0);
        let length_end = self.0.len();
        self.align(element_align);
        let start = self.0.len();
        fill(self);
        let length = (self.0.len() - start) as u32;
        self.0[length_end - 4..length_end].copy_from_slice(&length.to_ne_bytes());
    }

    /// A header field, `(yv)`.
    pub(super) fn variant(&mut self, code: u8, kind: &str, value: impl FnOnce(&mut Self)) {
        self.align(8);
        self.0.push(code);
        self.signature(kind);
        value(self);
    }

    /// A unit's property, `(sv)`.
    pub(super) fn property(&mut self, name: &str, kind: &str, value: impl FnOnce(&mut Self)) {
        self.align(8);
        self.string(name);
        self.signature(kind);
        value(self);
    }
}

/// The parts of a message that are used.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) reply_to: u32,
    /// The signal's member or the error's name.
    pub(super) name: String,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// Takes one message off the front of `input`. Some(None) if it is not complete yet, None if it is malformed.
    pub(super) fn take(input: &mut Vec<u8>) -> Option<Option<Self>> {
        const HEAD: usize = 16;
        // No reply to our calls is nearly this long.
        const MAX: usize = 1 << 20;
        if input.len() < HEAD {
            return Some(None);
        }
        let mut head = In { bytes: &input[..HEAD], at: 4 };
        let (body_length, _serial, fields_length) = (head.u32()? as usize, head.u32()?, head.u32()? as usize);
        if input[0] != ENDIAN || body_length > MAX || fields_length > MAX {
            return None;
        }
        let fields_end = HEAD + fields_length;
        let body_start = fields_end.next_multiple_of(8);
        let end = body_start + body_length;
        if input.len() < end {
            return Some(None);
        }
        let body = input[body_start..end].to_vec();
        let mut message = Self { kind: input[1], reply_to: 0, name: String::new(), body };
        let mut fields = In { bytes: &input[..fields_end], at: HEAD };
        while fields.at < fields_end {
            fields.at = fields.at.next_multiple_of(8);
            let code = fields.u8()?;
            match (fields.signature()?.as_str(), code) {
                ("u", 5) => message.reply_to = fields.u32()?,
                ("u", _) => drop(fields.u32()?),
                ("s", 3 | 4) => message.name = fields.string()?,
                ("s" | "o", _) => drop(fields.string()?),
                ("g", _) => drop(fields.signature()?),
                _ => return None,
            }
        }
        input.drain(..end);
        Some(Some(message))
    }

    pub(super) fn answers_manager_call(&self) -> bool {
        self.kind == REPLY && self.reply_to == MANAGER_CALL
    }
}

/// Unmarshals values. None if the bytes end too early.
pub(super) struct In<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl In<'_> {
    pub(super) fn take(&mut self, count: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.at = self.at.next_multiple_of(4);
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn string(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        self.terminated(length)
    }

    pub(super) fn signature(&mut self) -> Option<String> {
        let length = self.u8()?.into();
        self.terminated(length)
    }

    pub(super) fn terminated(&mut self, length: usize) -> Option<String> {
        let text = str::from_utf8(self.take(length)?).ok()?.to_owned();
        (self.u8()? == 0).then_some(text)
    }
}
