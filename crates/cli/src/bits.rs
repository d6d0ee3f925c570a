//! `--bits`: one number for all parts, or a number per part.

use sparing_model::Bits;

/// Reads `8`, or `embeddings=4,attention=8,ffn=6`; parts that are not named stay as they are.
pub fn parse(text: &str) -> Result<Bits, String> {
    let number = |text: &str| match text.trim().parse() {
        Ok(bits) if (2..=8).contains(&bits) => Ok(bits),
        _ => Err(format!("{text:?} is no number of bits from 2 to 8")),
    };
    if !text.contains('=') {
        return Ok(Bits::all(number(text)?));
    }
    let mut bits = Bits::default();
    for item in text.split(',') {
        let (part, value) = item.split_once('=').ok_or_else(|| format!("{item:?} is not PART=BITS"))?;
        let place = match part.trim() {
            "embeddings" => &mut bits.embeddings,
            "attention" => &mut bits.attention,
            "ffn" => &mut bits.ffn,
            "head" => &mut bits.head,
            other => return Err(format!("no part is called {other:?}; there are embeddings, attention, ffn and head")),
        };
        if place.replace(number(value)?).is_some() {
            return Err(format!("{part} is given twice"));
        }
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_or_one_per_part() {
        assert_eq!(parse("6"), Ok(Bits::all(6)));
        let some = Bits { embeddings: Some(4), ffn: Some(6), ..Bits::default() };
        assert_eq!(parse("embeddings=4,ffn=6"), Ok(some));
        for wrong in ["", "1", "9", "x", "ffn", "ffn=", "ffn=9", "knee=8", "ffn=4,ffn=5", "ffn=4,"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
