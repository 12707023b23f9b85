//! An incremental parser of server-sent events with a limit on their size, which the crates we know lack. It knows nothing of MCP.

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SseEvent {
    pub(super) data: Vec<u8>,
    pub(super) id: Option<String>,
    pub(super) retry: Option<u64>,
}

#[derive(Debug)]
pub(super) struct SseParser {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    after_cr: bool,
    limit: usize,
    started: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl SseParser {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            event: SseEvent::default(),
            has_data: false,
            after_cr: false,
            limit,
            started: false,
        }
    }

    /// Parses the next bytes and returns the events they completed.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<SseEvent>, TooLong> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            // CR LF is one line end, and a chunk may end between the two.
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = bytes.strip_prefix(b"\n")
            {
                bytes = rest;
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.line.extend_from_slice(bytes);
                // Checked while bytes arrive: a line without an end must not grow until memory is gone.
                if self.line.len() + self.event.data.len() > self.limit {
                    return Err(TooLong);
                }
                break;
            };
            let (part, rest) = bytes.split_at(end);
            self.line.extend_from_slice(part);
            if self.line.len() + self.event.data.len() > self.limit {
                return Err(TooLong);
            }
            self.after_cr = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            if let Some(event) = self.end_line() {
                events.push(event);
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        let line = if std::mem::replace(&mut self.started, true) {
            line.as_slice()
        } else {
            // The specification allows one byte order mark, at the start of the stream only.
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line)
        };
        if line.is_empty() {
            let complete = self.has_data || self.event.id.is_some() || self.event.retry.is_some();
            self.has_data = false;
            let event = std::mem::take(&mut self.event);
            return complete.then_some(event);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (line.get(..colon)?, line.get(colon + 1..)?),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
            }
            // An id with NUL is ignored, as the specification says: it could not be sent back in a header.
            b"id" if !value.contains(&0) => self.event.id = String::from_utf8(value.to_vec()).ok(),
            b"retry" => self.event.retry = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_any_cut() {
        let text = b"\xef\xbb\xbf: hello\r\nid: 7\r\ndata: {\"a\":\r\ndata:1}\r\n\r\nretry: 20\n\nevent: x\rdata: y\r\rdata: cut";
        for size in 1..text.len() {
            let mut parser = SseParser::new(1000);
            let mut seen = Vec::new();
            for part in text.chunks(size) {
                seen.extend(parser.push(part).unwrap());
            }
            let data: Vec<&[u8]> = seen.iter().map(|event| event.data.as_slice()).collect();
            assert_eq!(data, [&b"{\"a\":\n1}"[..], b"", b"y"], "cut {size}");
            assert_eq!(seen[0].id.as_deref(), Some("7"));
            assert_eq!(seen[1].retry, Some(20));
        }
    }

    #[test]
    fn endless_events_end() {
        let mut parser = SseParser::new(10);
        assert_eq!(parser.push(b"data: 0123456789"), Err(TooLong));
    }
}
