//! From text to tokens: what evaluation needs of a tokenizer.

use sparing_model::{Encoded, Error, Tokenizer};

/// Turns text into tokens. [`Tokenizer`] does; so can anything else that knows its model's tokens.
pub trait Encode: Sync {
    /// Encodes a text or a pair with special tokens, cut to `max_tokens` (by default to what the model takes).
    fn encode(&self, text: &str, pair: Option<&str>, max_tokens: Option<usize>) -> Result<Encoded, Error>;

    /// Encodes a question with a text of any length in windows of at most `max_tokens`, neighbours sharing `overlap` tokens of the text.
    fn encode_windows(
        &self,
        question: &str,
        context: &str,
        max_tokens: Option<usize>,
        overlap: usize,
    ) -> Result<Vec<Encoded>, Error>;

    /// The id of the mask token, if there is one.
    fn mask_id(&self) -> Option<u32>;
}

impl Encode for Tokenizer {
    fn encode(&self, text: &str, pair: Option<&str>, max_tokens: Option<usize>) -> Result<Encoded, Error> {
        Tokenizer::encode(self, text, pair, max_tokens)
    }

    fn encode_windows(
        &self,
        question: &str,
        context: &str,
        max_tokens: Option<usize>,
        overlap: usize,
    ) -> Result<Vec<Encoded>, Error> {
        Tokenizer::encode_windows(self, question, context, max_tokens, overlap)
    }

    fn mask_id(&self) -> Option<u32> {
        Tokenizer::mask_id(self)
    }
}

/// Encodes many texts on all cores. `at` names a text for errors.
pub(crate) fn encode_all<'a, T: Send>(
    texts: &[(&'a str, Option<&'a str>)],
    at: &(dyn Fn(usize) -> String + Sync),
    encode: &(dyn Fn(&'a str, Option<&'a str>) -> Result<T, Error> + Sync),
) -> Result<Vec<T>, Error> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let chunk = texts.len().div_ceil(threads).max(64);
    let work = |first: usize, part: &[(&'a str, Option<&'a str>)]| -> Result<Vec<T>, Error> {
        let one = |(i, (text, pair)): (usize, &(&'a str, Option<&'a str>))| {
            encode(text, *pair).map_err(|e| Error::new(format!("{}: {e}", at(first + i))))
        };
        part.iter().enumerate().map(one).collect()
    };
    std::thread::scope(|scope| {
        let work = &work;
        let jobs: Vec<_> =
            texts.chunks(chunk).enumerate().map(|(c, part)| scope.spawn(move || work(c * chunk, part))).collect();
        let mut all = Vec::with_capacity(texts.len());
        for job in jobs {
            all.extend(job.join().map_err(|_| Error::new("the tokenizer panicked"))??);
        }
        Ok(all)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sparing_model::Sequence;

    /// `[CLS] words [SEP] words [SEP]`: 101 and 102 are special, 103 masks, a word's id is 200 and the sum of its bytes.
    pub(crate) struct Words;

    fn push(e: &mut Encoded, id: u32, text: Option<u8>, kind: u32, offsets: (usize, usize)) {
        e.sequence.ids.push(id);
        e.sequence.types.push(kind);
        e.texts.push(text);
        e.offsets.push(offsets);
    }

    fn words(text: &str) -> Vec<(u32, (usize, usize))> {
        let place = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
        text.split_whitespace()
            .map(|w| (200 + w.bytes().map(u32::from).sum::<u32>() % 800, (place(w), place(w) + w.len())))
            .collect()
    }

    fn build(first: &[(u32, (usize, usize))], second: Option<&[(u32, (usize, usize))]>) -> Encoded {
        let sequence = Sequence::default();
        let mut e = Encoded { sequence, tokens: vec![], offsets: vec![], texts: vec![], truncated: false };
        push(&mut e, 101, None, 0, (0, 0));
        for (n, part) in [Some(first), second].into_iter().flatten().enumerate() {
            part.iter().for_each(|&(id, at)| push(&mut e, id, Some(n as u8), n as u32, at));
            push(&mut e, 102, None, n as u32, (0, 0));
        }
        e
    }

    impl Encode for Words {
        fn encode(&self, text: &str, pair: Option<&str>, max_tokens: Option<usize>) -> Result<Encoded, Error> {
            let (mut first, second) = (words(text), pair.map(words));
            first.truncate(max_tokens.map_or(usize::MAX, |n| n.saturating_sub(2)));
            Ok(build(&first, second.as_deref()))
        }

        fn encode_windows(
            &self,
            question: &str,
            context: &str,
            max_tokens: Option<usize>,
            overlap: usize,
        ) -> Result<Vec<Encoded>, Error> {
            let (first, all) = (words(question), words(context));
            let room = max_tokens.unwrap_or(12).min(512) - first.len() - 3;
            let (mut from, mut windows) = (0, vec![]);
            loop {
                let to = (from + room).min(all.len());
                windows.push(build(&first, Some(&all[from..to])));
                if to == all.len() {
                    return Ok(windows);
                }
                from = to - overlap;
            }
        }

        fn mask_id(&self) -> Option<u32> {
            Some(103)
        }
    }

    #[test]
    fn errors_say_which_text() {
        let texts: Vec<_> = (0..300).map(|i| (if i == 299 { "bad" } else { "good" }, None)).collect();
        let encode = |text: &'static str, _: Option<&'static str>| match text {
            "bad" => Err(Error::new("no")),
            other => Ok(other.len()),
        };
        let e = encode_all(&texts, &|i| format!("line {i}"), &encode).unwrap_err();
        assert_eq!(e.to_string(), "line 299: no");
        assert_eq!(encode_all(&texts[..299], &|_| String::new(), &encode).unwrap().len(), 299);
    }
}
