//! Models by Hub id, against a server on this machine that speaks the Hub's download routes.

#![cfg(feature = "hub")]

mod common;
mod server;

use common::*;
use server::{Hub, Mischief};
use sparing_model::{LoadOptions, Model, OpenOptions, Transfer};
use std::path::Path;

fn hub(mischief: Mischief) -> Hub {
    let mut all = files(&bert_config(), &bert_tensors("bert."));
    all.insert("vocab.txt".into(), b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n".to_vec());
    all.insert("README.md".into(), b"not needed".to_vec());
    all.insert("pytorch_model.bin".into(), b"not needed".to_vec());
    Hub::start(all, mischief)
}

fn open(hub: &Hub, name: &str, cache: &Path, offline: bool) -> Result<Model, String> {
    let options = OpenOptions {
        load: LoadOptions::default(),
        cache: Some(cache.to_path_buf()),
        endpoint: Some(hub.address()),
        offline: Some(offline),
        progress: None,
    };
    Model::open(name, options).map_err(|e| e.to_string())
}

#[test]
fn only_what_is_needed_is_fetched_and_only_once() {
    let (hub, cache) = (hub(Mischief::None), tempfile::tempdir().unwrap());
    let mut seen: Vec<(String, u64, u64)> = Vec::new();
    let mut progress = |t: Transfer<'_>| seen.push((t.file.to_string(), t.done, t.total));
    let options = OpenOptions {
        cache: Some(cache.path().to_path_buf()),
        endpoint: Some(format!("{}/", hub.address())),
        offline: Some(false),
        progress: Some(&mut progress),
        ..OpenOptions::default()
    };
    let model = Model::open("org/tiny", options).unwrap();
    assert_eq!(model.tokenizer().unwrap().vocabulary(), 6);
    let (_, done, total) = seen.iter().rev().find(|s| s.0 == "model.safetensors").unwrap();
    assert!(done == total && *total > 1000);
    let fetched = hub.fetched();
    assert!(fetched.iter().any(|p| p.ends_with("/model.safetensors")));
    assert!(!fetched.iter().any(|p| p.ends_with("README.md") || p.ends_with(".bin")));

    // Again: the Hub is asked for the revision, and nothing else.
    let before = hub.fetched().len();
    open(&hub, "org/tiny", cache.path(), false).unwrap();
    assert_eq!(hub.fetched().len(), before + 1);
    // Offline: not even that, by name or by commit.
    open(&hub, "org/tiny", cache.path(), true).unwrap();
    open(&hub, &format!("org/tiny@{}", server::COMMIT), cache.path(), true).unwrap();
    assert_eq!(hub.fetched().len(), before + 1);
}

#[test]
fn revisions() {
    let (hub, cache) = (hub(Mischief::None), tempfile::tempdir().unwrap());
    open(&hub, "org/tiny@v1.0", cache.path(), false).unwrap();
    assert!(hub.fetched()[0].ends_with("/api/models/org/tiny/revision/v1.0"), "{:?}", hub.fetched());
    open(&hub, "org/tiny@v1.0", cache.path(), true).unwrap();
    let message = open(&hub, "org/tiny", cache.path(), true).err().unwrap();
    assert!(message.contains("not in the cache"), "{message}");
}

#[test]
fn offline_without_a_cache() {
    let (hub, cache) = (hub(Mischief::None), tempfile::tempdir().unwrap());
    let message = open(&hub, "org/tiny", cache.path(), true).err().unwrap();
    assert!(message.starts_with("there is no directory org/tiny here"), "{message}");
    assert!(message.contains("org/tiny: is not in the cache") && message.contains("HF_HUB_OFFLINE"), "{message}");
    assert!(hub.fetched().is_empty());
}

#[test]
fn a_hub_that_is_down_falls_back_to_the_cache() {
    let cache = tempfile::tempdir().unwrap();
    let up = hub(Mischief::None);
    open(&up, "org/tiny", cache.path(), false).unwrap();
    let options = |cache: &Path| OpenOptions {
        cache: Some(cache.to_path_buf()),
        // Nobody listens there.
        endpoint: Some("http://127.0.0.1:9".to_string()),
        offline: Some(false),
        ..OpenOptions::default()
    };
    Model::open("org/tiny", options(cache.path())).unwrap();
    let message = Model::open("org/tiny", options(&cache.path().join("other"))).err().unwrap().to_string();
    assert!(message.contains("cannot be downloaded") && message.contains("check the network"), "{message}");
}

#[test]
fn names_the_hub_does_not_have() {
    let (hub, cache) = (hub(Mischief::None), tempfile::tempdir().unwrap());
    let message = open(&hub, "org/other", cache.path(), false).err().unwrap();
    assert!(message.contains("org/other: the Hub does not have this (404)"), "{message}");
    let message = open(&hub, "org/private", cache.path(), false).err().unwrap();
    assert!(message.contains("HF_TOKEN"), "{message}");
    let message = open(&hub, "./no/such/directory", cache.path(), false).err().unwrap();
    assert!(message.contains("no such directory"), "{message}");
}

#[test]
fn large_files_come_by_redirect() {
    let (hub, cache) = (hub(Mischief::Redirect), tempfile::tempdir().unwrap());
    open(&hub, "org/tiny", cache.path(), false).unwrap();
    assert!(hub.fetched().iter().any(|p| p.starts_with("/storage/")));
}

#[test]
fn a_download_that_breaks_off_is_resumed() {
    let (hub, cache) = (hub(Mischief::BreakOnce), tempfile::tempdir().unwrap());
    open(&hub, "org/tiny", cache.path(), false).unwrap();
    assert!(hub.resumed());
}

#[test]
fn a_download_that_stays_short_is_an_error_and_leaves_nothing() {
    for mischief in [Mischief::AlwaysBreak, Mischief::Short] {
        let (broken, cache) = (hub(mischief), tempfile::tempdir().unwrap());
        let message = open(&broken, "org/tiny", cache.path(), false).err().unwrap();
        assert!(message.contains("model.safetensors"), "{message}");
        // The name does not point to what is incomplete.
        assert!(open(&broken, "org/tiny", cache.path(), true).is_err());
        let whole = hub(Mischief::None);
        open(&whole, "org/tiny", cache.path(), false).unwrap();
    }
}

#[test]
fn a_hub_without_safetensors() {
    let mut all = files(&bert_config(), &[]);
    all.remove("model.safetensors");
    all.insert("pytorch_model.bin".into(), vec![0; 10]);
    let (hub, cache) = (Hub::start(all, Mischief::None), tempfile::tempdir().unwrap());
    let message = open(&hub, "org/tiny", cache.path(), false).err().unwrap();
    assert!(message.contains("no model.safetensors") && message.contains("save_pretrained"), "{message}");
    assert_eq!(hub.fetched().len(), 1);
}
