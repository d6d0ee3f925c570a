//! What a post-processor may add to a text, asked before any text is given to it.

use super::encode::failed;
use super::guard::guarded;
use crate::Error;
use tokenizers::{Encoding, PostProcessor, PostProcessorWrapper, Token};

/// More special tokens than any family has by far.
const MOST_ADDED: usize = 1000;

/// Refuses a post-processor that makes sequences longer than its special tokens can explain: texts are cut so that they
/// fit beside those, and a short template can ask for so many tokens that they take all of the memory.
pub(super) fn check(processor: &PostProcessorWrapper, file: &str) -> Result<(), Error> {
    for pair in [false, true] {
        let added = processor.added_tokens(pair);
        if added > MOST_ADDED {
            return Err(Error::new(format!(
                "{file}: adds {added} special tokens to every text, {MOST_ADDED} is the limit; correct its post_processor"
            )));
        }
        let second = pair.then(|| token(1));
        let processed = guarded(file, || processor.process(token(0), second, true).map_err(failed));
        match processed {
            Ok(sequence) if sequence.len() > 1 + usize::from(pair) + added => {
                return Err(Error::new(format!(
                    "{file}: its post_processor repeats the text; correct it so that each text is there once"
                )));
            }
            // Told to those who give a pair: single texts may still be right.
            Err(e) if !pair => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// A text of one token.
fn token(text: usize) -> Encoding {
    let mut encoding = Encoding::from_tokens(vec![Token::new(0, String::new(), (0, 0))], 0);
    encoding.set_sequence_id(text);
    encoding
}
