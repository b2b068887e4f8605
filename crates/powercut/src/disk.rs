//! The state of the disk at one place of a recording, and what a power cut may leave of it.
//!
//! Synced data is kept. Later writes are kept or lost in sectors of 512 bytes, and each sector has the content of some
//! moment since the sync: the system writes its memory back at any time and in any order. The length of a file may be old
//! or new, and so may the names in the folder.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::recording::{FileId, Operation, Recording};

/// The unit that a disk writes completely or not at all.
const SECTOR_BYTES: u64 = 512;

/// Which syncs the disk ignores. Dishonest disks show that the checks find lost data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honesty {
    /// The disk keeps synced data.
    Honest,
    /// Syncs of the write-ahead log do nothing, as with `synchronous = NORMAL`.
    IgnoresLogSyncs,
    /// Syncs of the file behind the log do nothing.
    IgnoresFileSyncs,
    /// No sync does anything, as with `synchronous = OFF`.
    IgnoresSyncs,
    /// Names are never synced.
    IgnoresFolderSyncs,
}

/// The disk after some of the operations.
#[derive(Debug)]
pub(crate) struct Disk<'r> {
    recording: &'r Recording,
    honesty: Honesty,
    position: usize,
    files: Vec<File<'r>>,
    /// The names that are on the disk.
    names: BTreeMap<String, FileId>,
    /// Changes of names since the last sync of the folder: the file, or nothing for a deleted one.
    renamed: Vec<(&'r str, Option<FileId>)>,
}

/// The contents of files, by name.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Default)]
struct File<'r> {
    is_log: bool,
    synced: Vec<u8>,
    /// Changes since the last sync, with the numbers of their operations.
    since: Vec<(usize, Touch<'r>)>,
}

#[derive(Debug, Clone, Copy)]
enum Touch<'r> {
    Write(u64, &'r [u8]),
    Truncate(u64),
}

/// How a power cut treats changes that were not synced.
#[derive(Debug, Clone, Copy)]
enum Tear {
    /// This number of changes is kept, and the later ones are lost.
    Prefix(usize),
    /// Each sector keeps its own number of changes, which is derived from this number.
    Sectors(u64),
}

impl<'r> Disk<'r> {
    /// The disk as the recording found it.
    pub(crate) fn new(recording: &'r Recording, honesty: Honesty) -> Self {
        let file = |(name, bytes): (&String, &Vec<u8>)| File {
            is_log: is_log(name),
            synced: bytes.clone(),
            since: Vec::new(),
        };
        let files = recording.found.iter().map(file).collect();
        let names = recording.found.keys().cloned().zip(0..).collect();
        Self { recording, honesty, position: 0, files, names, renamed: Vec::new() }
    }

    /// Applies operations until `position` of them are done.
    pub(crate) fn advance(&mut self, position: usize) {
        let recording = self.recording;
        while self.position < position.min(recording.operations.len()) {
            match &recording.operations[self.position] {
                Operation::Create { name, file } => {
                    self.files.resize_with(self.files.len().max(file + 1), File::default);
                    self.files[*file].is_log = is_log(name);
                    self.renamed.push((name, Some(*file)));
                }
                Operation::Delete { name } => self.renamed.push((name, None)),
                Operation::Write { file, offset, data } => {
                    self.files[*file].since.push((self.position, Touch::Write(*offset, data)));
                }
                Operation::Truncate { file, length } => {
                    self.files[*file].since.push((self.position, Touch::Truncate(*length)));
                }
                Operation::Sync { file, covers } => self.sync(*file, *covers),
                Operation::SyncFolder => self.sync_folder(),
            }
            self.position += 1;
        }
    }

    fn sync(&mut self, file: FileId, covers: usize) {
        let file = &mut self.files[file];
        let is_ignored = match self.honesty {
            Honesty::Honest | Honesty::IgnoresFolderSyncs => false,
            Honesty::IgnoresLogSyncs => file.is_log,
            Honesty::IgnoresFileSyncs => !file.is_log,
            Honesty::IgnoresSyncs => true,
        };
        if !is_ignored {
            let covered = file.since.iter().take_while(|(number, _)| *number < covers).count();
            for (_, touch) in file.since.drain(..covered) {
                touch.apply(&mut file.synced);
            }
        }
    }

    fn sync_folder(&mut self) {
        if !matches!(self.honesty, Honesty::IgnoresFolderSyncs | Honesty::IgnoresSyncs) {
            for (name, file) in self.renamed.drain(..) {
                rename(&mut self.names, name, file);
            }
        }
    }

    /// The files with all changes, as without a power cut.
    pub(crate) fn whole(&self) -> Image {
        let mut names = self.names.clone();
        for (name, file) in &self.renamed {
            rename(&mut names, name, *file);
        }
        let bytes = |file: FileId| {
            let file: &File<'_> = &self.files[file];
            file.torn(Tear::Prefix(file.since.len()), 0)
        };
        names.into_iter().map(|(name, file)| (name, bytes(file))).collect()
    }

    /// The files that a power cut leaves, by random choice.
    pub(crate) fn cut(&self, random: &mut Rng) -> Image {
        let mut names = self.names.clone();
        let kept = prefix(self.renamed.len(), random);
        let in_order = random.bool();
        for (index, (name, file)) in self.renamed.iter().enumerate() {
            if if in_order { index < kept } else { random.bool() } {
                rename(&mut names, name, *file);
            }
        }
        let mut image = Image::new();
        for (name, file) in names {
            let file = &self.files[file];
            let tear = match random.u8(..2) {
                0 => Tear::Prefix(prefix(file.since.len(), random)),
                _ => Tear::Sectors(random.u64(..)),
            };
            // Where a file grew without being written, it contains zeros or what the disk had there before.
            let stale = if random.bool() { 0 } else { random.u8(..) };
            image.insert(name, file.torn(tear, stale));
        }
        image
    }
}

impl File<'_> {
    /// The bytes that `tear` leaves, with `stale` where nothing was written.
    fn torn(&self, tear: Tear, stale: u8) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let mut length = bytes.len() as u64;
        let length_from = tear.changes_kept(u64::MAX, self.since.len());
        for (index, (_, touch)) in self.since.iter().enumerate() {
            let is_kept = |sector| index < tear.changes_kept(sector, self.since.len());
            match *touch {
                Touch::Write(offset, data) => {
                    let end = offset + data.len() as u64;
                    if (bytes.len() as u64) < end {
                        bytes.resize(end as usize, stale);
                    }
                    for (start, end) in sectors(offset, end) {
                        if is_kept(start / SECTOR_BYTES) {
                            let from = (start - offset) as usize..(end - offset) as usize;
                            bytes[start as usize..end as usize].copy_from_slice(&data[from]);
                        }
                    }
                }
                Touch::Truncate(to) => {
                    for (start, end) in sectors(to, bytes.len() as u64) {
                        if is_kept(start / SECTOR_BYTES) {
                            bytes[start as usize..end as usize].fill(0);
                        }
                    }
                }
            }
            if index < length_from {
                length = touch.length(length);
            }
        }
        bytes.resize(length as usize, stale);
        bytes
    }
}

impl Tear {
    /// The number of changes that a sector has seen, out of `count`. The length of the file counts as a sector.
    fn changes_kept(self, sector: u64, count: usize) -> usize {
        match self {
            Self::Prefix(kept) => kept,
            Self::Sectors(seed) => {
                let mut random = Rng::with_seed(seed ^ sector.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                prefix(count, &mut random)
            }
        }
    }
}

impl Touch<'_> {
    fn length(self, before: u64) -> u64 {
        match self {
            Self::Write(offset, data) => before.max(offset + data.len() as u64),
            Self::Truncate(length) => length,
        }
    }

    fn apply(self, bytes: &mut Vec<u8>) {
        bytes.resize(self.length(bytes.len() as u64) as usize, 0);
        if let Self::Write(offset, data) = self {
            bytes[offset as usize..][..data.len()].copy_from_slice(data);
        }
    }
}

/// The number of changes that are kept, out of `count`: none, all or some, with equal chances.
fn prefix(count: usize, random: &mut Rng) -> usize {
    match random.u8(..3) {
        0 => 0,
        1 => count,
        _ => random.usize(..=count),
    }
}

/// The parts of `start..end` in each sector.
fn sectors(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let from = at;
        at = end.min((from / SECTOR_BYTES + 1) * SECTOR_BYTES);
        (from < end).then_some((from, at))
    })
}

fn rename(names: &mut BTreeMap<String, FileId>, name: &str, file: Option<FileId>) {
    match file {
        Some(file) => names.insert(name.to_owned(), file),
        None => names.remove(name),
    };
}

/// Whether a file with this name is a write-ahead log.
pub(crate) fn is_log(name: &str) -> bool {
    name.ends_with("-wal")
}
