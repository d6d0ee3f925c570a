//! Plain text as training examples: pieces, pairs of pieces, hidden words.

use crate::data::{Example, Target, parallel};
use crate::random::Random;
use sparing_model::{Error, Sequence, Tokenizer};

/// Share of tokens that are predicted (Devlin et al. 2018).
pub const MASKED_SHARE: f64 = 0.15;

/// The tokens of every document, without special ones.
fn tokens(tokenizer: &Tokenizer, corpus: &[String]) -> Result<Vec<Vec<u32>>, Error> {
    let documents: Vec<&str> = corpus.iter().map(String::as_str).collect();
    parallel(&documents, &|text| {
        let mut ids = Vec::new();
        for window in tokenizer.encode_windows("", text, None, 0)? {
            let content = (0..window.texts.len()).filter(|&i| window.texts[i] == Some(1));
            ids.extend(content.map(|i| window.sequence.ids[i]));
        }
        Ok(ids)
    })
}

/// Cuts documents into pieces of at most `most` tokens with special tokens where the model wants them. A causal model
/// reads documents end to end, divided by the token that ends a text.
pub fn pieces(tokenizer: &Tokenizer, corpus: &[String], most: usize, causal: bool) -> Result<Vec<Sequence>, Error> {
    let tokens = tokens(tokenizer, corpus)?;
    let plain = |ids: Vec<u32>| Sequence { ids, types: Vec::new() };
    let all: Vec<Sequence> = if causal {
        let mut joined: Vec<u32> = Vec::new();
        for ids in tokens {
            joined.extend(ids);
            joined.extend(tokenizer.end_id());
        }
        joined.chunks(most).filter(|c| c.len() > 1).map(|c| plain(c.to_vec())).collect()
    } else {
        let edges = tokenizer.encode("", None, None)?.sequence.ids;
        let split = usize::from(edges.len() > 1);
        let room = most.saturating_sub(edges.len());
        if room == 0 {
            return Err(Error::new(format!("{most} tokens leave no room for text beside the special ones")));
        }
        let wrap = |chunk: &[u32]| plain([&edges[..split], chunk, &edges[split..]].concat());
        tokens.iter().flat_map(|ids| ids.chunks(room)).map(wrap).collect()
    };
    if all.is_empty() {
        return Err(Error::new("the corpus holds no text"));
    }
    Ok(all)
}

/// How tokens are hidden: of those chosen, 80% become the mask, 10% another token, 10% stay (Devlin et al. 2018).
#[derive(Debug, Clone)]
pub struct Masking {
    mask: u32,
    /// Tokens that may take another's place.
    ordinary: Vec<u32>,
    special: Vec<u32>,
}

impl Masking {
    /// For a tokenizer with a mask token.
    pub fn new(tokenizer: &Tokenizer) -> Result<Masking, Error> {
        let mask = tokenizer.mask_id().ok_or_else(|| Error::new("the tokenizer has no mask token"))?;
        let edges = tokenizer.encode("", None, None)?.sequence.ids;
        let mut special: Vec<u32> = tokenizer.special_ids().iter().copied().chain(edges).chain([mask]).collect();
        special.sort_unstable();
        special.dedup();
        let ordinary = (0..tokenizer.vocabulary() as u32).filter(|id| special.binary_search(id).is_err()).collect();
        Ok(Masking { mask, ordinary, special })
    }

    /// Hides tokens of a piece; the same seed hides the same. Special tokens stay.
    pub fn apply(&self, piece: &Sequence, seed: u64) -> Example {
        let mut random = Random::new(seed);
        let mut ids = piece.ids.clone();
        let mut rows = Vec::new();
        let mut candidates: Vec<usize> =
            (0..ids.len()).filter(|&i| self.special.binary_search(&ids[i]).is_err()).collect();
        random.shuffle(&mut candidates);
        let count = (candidates.len() as f64 * MASKED_SHARE).round().max(1.0) as usize;
        for &i in candidates.iter().take(count) {
            rows.push((i, ids[i]));
            match random.uniform() {
                u if u < 0.8 => ids[i] = self.mask,
                u if u < 0.9 && !self.ordinary.is_empty() => ids[i] = self.ordinary[random.below(self.ordinary.len())],
                _ => {}
            }
        }
        Example { sequence: Sequence { ids, types: piece.types.clone() }, target: Target::Rows(rows) }
    }
}

/// What is asked about two pieces of text, beside hidden words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairTask {
    /// Are they in their order, or swapped (ALBERT)?
    SentenceOrder,
    /// Does the second follow the first, or is it from elsewhere (BERT)?
    NextSentence,
}

/// Pieces of text to be divided in two, and the tokens around them.
#[derive(Debug, Clone)]
pub struct Pairs {
    task: PairTask,
    pieces: Vec<Vec<u32>>,
    /// Before the first text, between the two, after the second.
    edges: [u32; 3],
}

impl Pairs {
    /// Cuts documents into pieces that make pairs of at most `most` tokens.
    pub fn new(tokenizer: &Tokenizer, corpus: &[String], most: usize, task: PairTask) -> Result<Pairs, Error> {
        let around = tokenizer.encode("", Some(""), None)?.sequence.ids;
        let edges: [u32; 3] = around.try_into().map_err(|_| {
            Error::new("pairs need a tokenizer that puts one token before, between and after two texts (BERT, ALBERT)")
        })?;
        let room = most.saturating_sub(edges.len());
        if room < 2 {
            return Err(Error::new(format!("{most} tokens leave no room for two texts beside the special ones")));
        }
        let tokens = tokens(tokenizer, corpus)?;
        let pieces: Vec<Vec<u32>> =
            tokens.iter().flat_map(|ids| ids.chunks(room)).filter(|c| c.len() > 1).map(<[u32]>::to_vec).collect();
        if pieces.len() < 2 {
            return Err(Error::new("the corpus holds too little text for pairs"));
        }
        Ok(Pairs { task, pieces, edges })
    }

    /// Tokens of every pair; with [`PairTask::NextSentence`] at most.
    pub fn lengths(&self) -> Vec<usize> {
        self.pieces.iter().map(|p| p.len() + self.edges.len()).collect()
    }

    /// The pair number `i` as this seed divides and joins it, and whether it is not the way it was written (1).
    pub fn pair(&self, i: usize, seed: u64) -> (Sequence, usize) {
        let mut random = Random::new(seed);
        let piece = &self.pieces[i];
        let cut = |piece: &[u32], random: &mut Random| {
            (piece.len() / 4 + random.below(piece.len() / 2 + 1)).clamp(1, piece.len() - 1)
        };
        let at = cut(piece, &mut random);
        let (mut first, mut second) = (&piece[..at], &piece[at..]);
        let changed = random.below(2);
        if changed == 1 {
            match self.task {
                PairTask::SentenceOrder => std::mem::swap(&mut first, &mut second),
                PairTask::NextSentence => {
                    let other = (i + 1 + random.below(self.pieces.len() - 1)) % self.pieces.len();
                    let other = &self.pieces[other];
                    let from = cut(other, &mut random);
                    // No longer than what it replaces: the pair keeps its length.
                    second = &other[from..(from + second.len()).min(other.len())];
                }
            }
        }
        let [begin, middle, end] = self.edges;
        let ids = [&[begin], first, &[middle], second, &[end]].concat();
        let types = [vec![0; first.len() + 2], vec![1; second.len() + 1]].concat();
        (Sequence { ids, types }, changed)
    }
}
