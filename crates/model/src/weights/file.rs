//! One safetensors file, mapped or in memory, and its header, of which nothing is believed unchecked.

use super::quantized::{self, Grid};
use crate::Error;
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

/// The bytes of one file.
pub(crate) enum Bytes {
    Mapped(Mmap),
    Held(Cow<'static, [u8]>),
}

impl Bytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Held(bytes) => bytes,
        }
    }

    /// Maps a file for reading.
    pub(crate) fn map(path: &Path) -> Result<Bytes, Error> {
        let failed = |e: std::io::Error| Error::new(format!("{}: cannot be read ({e})", path.display()));
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(Error::new(format!("{}: is not a file", path.display())));
        }
        // SAFETY: the mapping is read-only and private. Nobody may change or shorten the file while it is
        // mapped; this program only ever replaces model files by renaming, which leaves the mapped one intact.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Bytes::Mapped(map))
    }

    /// Lets go of the resident pages that lie wholly inside `start..end`. They are read again from the
    /// file if they are touched after all.
    pub(crate) fn release(&self, start: usize, end: usize) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = self {
            const PAGE: usize = 4096;
            let (start, end) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
            if start < end {
                // SAFETY: on a read-only mapping of a file, "don't need" discards nothing that cannot be read again.
                let advice =
                    unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
                // Advice that is not taken costs memory, nothing else.
                let _ = advice;
            }
        }
        #[cfg(not(unix))]
        let _ = (start, end);
    }
}

/// Where one tensor lies in its file.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    /// Of the numbers: packed integers have fewer bytes.
    pub(crate) shape: Vec<usize>,
    /// Byte range in the file, checked to lie inside it and to fit the shape.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// How integers become numbers, where the file says that these do.
    pub(crate) grid: Option<Grid>,
}

/// Reads and checks a header. `what` names the file in errors.
pub(crate) fn places(bytes: &[u8], what: &str) -> Result<Vec<Place>, Error> {
    let bad =
        |why: String| Error::new(format!("{what}: not a sound safetensors file: {why}; fetch or export it again"));
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| bad(one_line(&e.to_string())))?;
    // The length prefix and the header were just checked to lie inside the file.
    let data = 8 + header;
    if let Some(name) = duplicate(&bytes[8..data]) {
        return Err(bad(format!("tensor \"{name}\" is listed twice")));
    }
    let mut places = Vec::new();
    for (name, info) in metadata.tensors() {
        let (start, end) = (data + info.data_offsets.0, data + info.data_offsets.1);
        places.push(Place { dtype: info.dtype, shape: info.shape.clone(), start, end, name, grid: None });
    }
    if let Some(text) = metadata.metadata().as_ref().and_then(|m| m.get(quantized::KEY)) {
        places = quantized::resolve(places, text, bytes).map_err(bad)?;
    }
    places.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(places)
}

/// The first key that occurs twice. (The safetensors crate keeps the last without a word.)
fn duplicate(header: &[u8]) -> Option<String> {
    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = Option<String>;
        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            f.write_str("a map")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut seen = HashSet::new();
            let mut twice = None;
            while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                if twice.is_none() && seen.contains(&key) {
                    twice = Some(key.clone());
                }
                seen.insert(key);
            }
            Ok(twice)
        }
    }
    serde::Deserializer::deserialize_map(&mut serde_json::Deserializer::from_slice(header), Keys).ok().flatten()
}

/// Errors are one line: whatever a library says is flattened and shortened.
pub(crate) fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    if text.chars().count() > 300 {
        line.push('…');
    }
    line
}
