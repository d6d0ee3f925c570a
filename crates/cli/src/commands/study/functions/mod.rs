//! `sparing study functions`: the figures of MA-BERT (Neo et al. 2023) for a student and its teacher.

mod growth;
mod maps;

use crate::console::{Out, note};
use crate::failure::Failure;
use crate::{files, load};
use clap::Args;
use sparing_model::Model;
use sparing_train::{attention_maps, same_words};
use std::path::PathBuf;

/// Draws what a student with replaced functions has learned: its attention beside its teacher's, its networks, its growth
///
/// attention.svg: shares of three layers on a text, teacher and student side by side (the paper's Figures 3 and 4).
/// networks.svg: weights of the networks in softmax's place (Figures 5 and 6). growth.svg: multiplications of a layer against the
/// length of a text (Figure 2).
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sparing study functions sst2-model ma-sst2 --out figures")]
pub struct FunctionsArgs {
    /// The model that taught
    #[arg(value_name = "TEACHER")]
    teacher: String,

    /// The model that `sparing train transfer` made of it
    #[arg(value_name = "STUDENT")]
    student: String,

    /// The text that both look at
    #[arg(long, value_name = "TEXT", default_value = "the quick brown fox jumps over the lazy dog")]
    text: String,

    /// The folder of the pictures
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the command.
pub fn functions(args: &FunctionsArgs) -> Result<(), Failure> {
    let [teacher, student] = [&args.teacher, &args.student].map(|name| load::open(name, None));
    let (teacher, student) = (teacher?, student?);
    same_words(&student, &teacher)?;
    let networks = maps::networks(&student)?;
    if networks.is_empty() {
        let why = "has no network in softmax's place; `sparing train transfer` makes such a student";
        return Err(Failure::new(format!("{}: {why}", args.student)));
    }
    let mut pictures =
        vec![("networks.svg", maps::draw_networks(&networks)), ("growth.svg", growth::draw(&teacher.architecture))];
    match attention(args, &teacher, &student)? {
        Some(picture) => pictures.push(("attention.svg", picture)),
        None => note("no attention.svg: the student's shares are of projected keys, not of tokens"),
    }
    let folder = &args.out;
    std::fs::create_dir_all(folder).map_err(|e| Failure::new(format!("{}: cannot be made ({e})", folder.display())))?;
    let mut out = Out::new();
    for (name, picture) in pictures {
        let path = folder.join(name);
        files::write(&path, picture.as_bytes())?;
        out.line(&path.display().to_string())?;
    }
    out.flush()
}

/// Both models' attention; `None` for a student with projected keys, whose shares are of other things than tokens.
fn attention(args: &FunctionsArgs, teacher: &Model, student: &Model) -> Result<Option<String>, Failure> {
    let encoded = student.tokenizer()?.encode(&args.text, None, student.architecture.longest_input())?;
    let (theirs, own) = (attention_maps(teacher, &encoded.sequence)?, attention_maps(student, &encoded.sequence)?);
    let pairs: Vec<_> = own
        .iter()
        .filter_map(|own| theirs.iter().find(|map| map.layer == own.layer).map(|map| (own.layer, map, own)))
        .map(|(layer, theirs, own)| (layer, theirs.shares.as_slice(), own.shares.as_slice()))
        .collect();
    // The last layer of each third, as in the paper.
    let third = |i: usize| pairs.get((i * pairs.len()).div_ceil(3).saturating_sub(1)).copied();
    let mut chosen: Vec<_> = (1..=3).filter_map(third).collect();
    chosen.dedup_by_key(|pair| pair.0);
    Ok((!chosen.is_empty()).then(|| maps::draw_attention(&args.text, &chosen)))
}
