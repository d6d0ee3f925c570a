//! Tells models and configurations apart.

use serde::{Deserialize, Serialize};
use sparing_model::{Error, Model};

/// What a certificate is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// Of the network, its tokenizer, the weights and their names.
    pub model: String,
    /// The cheap configuration in words, such as `int8, attention graded:0.4`.
    pub configuration: String,
    /// Of what the words leave out: the calibration.
    pub details: String,
}

impl Fingerprint {
    /// The fingerprint of a model run with this configuration. Reads all weights.
    pub fn new(model: &Model, configuration: String, details: &[u8]) -> Result<Fingerprint, Error> {
        let mut hash = Hash::default();
        let mut names: Vec<&str> = model.weights.names().collect();
        names.sort_unstable();
        for name in names {
            hash.add(name.as_bytes());
            hash.add(model.weights.tensor(name)?.bytes());
        }
        // What is computed with them, labels included, and what of: the same weights under another configuration are another model.
        hash.add(format!("{:?}", model.architecture).as_bytes());
        if let Some(tokenizer) = &model.tokenizer {
            hash.add(tokenizer.description()?.as_bytes());
        }
        let mut rest = Hash::default();
        rest.add(details);
        Ok(Fingerprint { model: hash.text(), configuration, details: rest.text() })
    }
}

/// FNV-1a over words of eight bytes, lengths included: no secret, only a difference to be noticed.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    fn word(&mut self, word: u64) {
        // The shift lets high bits reach low ones, which multiplication alone does not.
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 ^= self.0 >> 29;
    }

    fn text(&self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(parts: &[&[u8]]) -> String {
        let mut hash = Hash::default();
        parts.iter().for_each(|part| hash.add(part));
        hash.text()
    }

    #[test]
    fn one_bit_or_one_boundary_is_noticed() {
        let data = [7u8; 100];
        let mut other = data;
        other[63] ^= 0x80;
        assert_ne!(hash(&[&data]), hash(&[&other]));
        assert_ne!(hash(&[&data[..50], &data[50..]]), hash(&[&data[..51], &data[51..]]));
        assert_ne!(hash(&[&[0]]), hash(&[&[0, 0]]));
        assert_eq!(hash(&[&data]), hash(&[&data]));
    }
}
