//! ZooKeeper's encoding: numbers with the highest byte first, and strings and buffers with their length before
//! them.

/// The kinds of requests.
pub(super) mod op {
    pub(in super::super) const DELETE: i32 = 2;
    pub(in super::super) const EXISTS: i32 = 3;
    pub(in super::super) const GET_DATA: i32 = 4;
    pub(in super::super) const SYNC: i32 = 9;
    pub(in super::super) const GET_CHILDREN: i32 = 12;
    pub(in super::super) const CHECK: i32 = 13;
    pub(in super::super) const MULTI: i32 = 14;
    pub(in super::super) const CREATE: i32 = 15;
    pub(in super::super) const CREATE_CONTAINER: i32 = 19;
    pub(in super::super) const AUTH: i32 = 100;
    pub(in super::super) const CLOSE: i32 = -11;
}

/// The errors of answers that mean something here.
pub(super) mod error {
    pub(in super::super) const CONNECTION_LOSS: i32 = -4;
    pub(in super::super) const NO_NODE: i32 = -101;
    pub(in super::super) const NO_AUTH: i32 = -102;
    pub(in super::super) const NODE_EXISTS: i32 = -110;
    pub(in super::super) const SESSION_EXPIRED: i32 = -112;
    pub(in super::super) const AUTH_FAILED: i32 = -115;
    pub(in super::super) const SESSION_MOVED: i32 = -118;
}

/// Writes a record.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn bool(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    pub(super) fn buffer(mut self, value: &[u8]) -> Self {
        // Nothing here is that long.
        let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
        self = self.int(length);
        self.0.extend(value);
        self
    }

    pub(super) fn string(self, value: &str) -> Self {
        self.buffer(value.as_bytes())
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a record. Everything is none at and after the first thing that is cut short.
#[derive(Debug)]
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    pub(super) fn bool(&mut self) -> Option<bool> {
        self.take::<1>().map(|byte| byte != [0])
    }

    /// A length of -1 means that there is nothing.
    pub(super) fn buffer(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.int()?).unwrap_or(0);
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    pub(super) fn string(&mut self) -> Option<&'b str> {
        std::str::from_utf8(self.buffer()?).ok()
    }

    /// What is left.
    pub(super) fn rest(self) -> &'b [u8] {
        self.0
    }
}

/// What is kept about a node, as far as it is needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// The zxid of the change that created it.
    pub(super) czxid: i64,
    /// The session that it ends with; 0 for none.
    pub(super) owner: i64,
}

impl Stat {
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let czxid = reader.long()?;
        let (_mzxid, _ctime, _mtime) = (reader.long()?, reader.long()?, reader.long()?);
        let (_version, _cversion, _aversion) = (reader.int()?, reader.int()?, reader.int()?);
        let owner = reader.long()?;
        let (_length, _children, _pzxid) = (reader.int()?, reader.int()?, reader.long()?);
        Some(Self { czxid, owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let bytes = Writer::default().int(-7).long(1 << 40).bool(true).string("ä").buffer(&[1, 2]).bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.int(), reader.long(), reader.bool()), (Some(-7), Some(1 << 40), Some(true)));
        assert_eq!((reader.string(), reader.buffer()), (Some("ä"), Some(&[1, 2][..])));
        assert_eq!(reader.rest(), &[] as &[u8]);
    }

    /// From a network come any bytes.
    #[test]
    fn what_is_cut_short_is_none() {
        let whole = Writer::default().string("abc").bytes();
        for length in 0..whole.len() {
            assert_eq!(Reader::new(&whole[..length]).string(), None, "{length}");
        }
        let absent = Writer::default().int(-1).bytes();
        assert_eq!(Reader::new(&absent).buffer(), Some(&[][..]));
        let huge = Writer::default().int(i32::MAX).bytes();
        assert_eq!(Reader::new(&huge).buffer(), None);
        assert_eq!(Stat::read(&mut Reader::new(&[0; 67])), None);
        assert_eq!(Stat::read(&mut Reader::new(&[0; 68])), Some(Stat { czxid: 0, owner: 0 }));
    }
}
