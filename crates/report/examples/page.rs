//! Writes the page and the card of a `report.json`, the example's by default:
//! `cargo run -p sparing-report --example page -- DIRECTORY [REPORT.JSON]`.

use sparing_report::{BaseCard, Report};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name the directory to write to")?;
    let json = match arguments.next() {
        Some(path) => std::fs::read_to_string(path)?,
        None => include_str!("../tests/example.json").to_owned(),
    };
    Report::parse(&json)?.save(directory.as_ref(), &BaseCard::default())?;
    Ok(())
}
