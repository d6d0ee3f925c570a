//! Whatever is wrong with the input gets one clear line and the right exit code, never a panic.

mod common;

use common::{command, copied, file, finish, fixture, piped, sparing, with_vocabulary};

#[test]
fn models_that_are_not_there_or_not_whole() {
    let message = sparing(&["run", "no/such/directory/at/all", "x"]).error(1);
    assert!(message.contains("no/such/directory/at/all"), "{message}");
    // A Hub id that is not in the cache, and nobody may be asked.
    let mut offline = command(&["run", "org/name", "x"]);
    let cache = tempfile::tempdir().unwrap();
    offline.env("HF_HOME", cache.path());
    let message = finish(offline, &[]).error(1);
    assert!(message.contains("org/name") && message.contains("HF_HUB_OFFLINE"), "{message}");
    assert!(sparing(&["inspect", "/"]).error(1).contains("config.json"));
    let (_folder, broken) = with_vocabulary("bert-classify");
    std::fs::write(format!("{broken}/config.json"), "{\"model_type\": \"bert\"").unwrap();
    assert!(sparing(&["inspect", &broken]).error(1).contains("config.json"));
    let (_folder, broken) = with_vocabulary("bert-classify");
    std::fs::write(format!("{broken}/model.safetensors"), [0xff; 64]).unwrap();
    assert!(sparing(&["run", &broken, "x"]).error(1).contains("model.safetensors"));
    let no_tokenizer = sparing(&["run", &fixture("bert-classify"), "x"]).error(1);
    assert!(no_tokenizer.contains("holds no tokenizer"), "{no_tokenizer}");
}

/// The library that reads Parquet asserts what this file's pages should be; nobody is to see that.
#[test]
fn a_table_at_odds_with_itself() {
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../tasks/tests/data/snappy.parquet");
    let mut bytes = std::fs::read(whole).unwrap();
    bytes[551] = 255;
    let (_folder, table) = file("mine.parquet", bytes);
    let message = sparing(&["eval", &fixture("bert-classify-text"), "--data", &table]).error(1);
    assert!(message.contains("mine.parquet: not a readable Parquet file: its pages contradict"), "{message}");
}

/// The library that reads tokenizers panics on these; nobody is to see that.
#[test]
fn tokenizers_at_odds_with_themselves() {
    let definition = |normalizer: &str, splitter: &str| {
        format!(
            "{{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": {normalizer}, \
             \"pre_tokenizer\": {splitter}, \"post_processor\": null, \"decoder\": null, \"model\": {{\"type\": \
             \"WordLevel\", \"unk_token\": \"x\", \"vocab\": {{\"x\": 0}}}}}}"
        )
    };
    let table = "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}";
    let lengths = "{\"type\": \"FixedLength\", \"length\": 0}";
    for (text, why) in [(definition(table, "null"), "charsmap"), (definition("null", lengths), "chunk size")] {
        let (_folder, model) = copied("bert-classify-text");
        std::fs::write(format!("{model}/tokenizer.json"), text).unwrap();
        let message = sparing(&["run", &model, "a film"]).error(1);
        assert!(message.contains(&format!("{model}/tokenizer.json: damaged")) && message.contains(why), "{message}");
    }
}

#[test]
fn files_that_are_not_there_or_not_text() {
    let model = fixture("bert-classify-text");
    assert!(sparing(&["run", &model, "--file", "missing.txt"]).error(1).contains("missing.txt"));
    assert!(sparing(&["run", &model, "--file", "missing.csv"]).error(1).contains("missing.csv"));
    assert!(sparing(&["run", &model, "--file", "."]).error(1).contains("directory"));
    assert!(sparing(&["eval", &model, "--data", "missing.csv"]).error(1).contains("missing.csv"));
    let (_a, bad) = file("bad.csv", b"text,label\n\xff\xfe,zero\n");
    assert!(sparing(&["eval", &model, "--data", &bad]).error(1).contains("UTF-8"));
    let (_b, empty) = file("empty.csv", "");
    assert!(sparing(&["eval", &model, "--data", &empty]).error(1).contains("empty"));
}

#[test]
fn invalid_utf8_on_standard_input_keeps_what_came_before() {
    let ran = piped(&["run", &fixture("bert-classify-text"), "--json"], b"a film\nbad \xff\nthe plot\n");
    assert_eq!(ran.out.lines().count(), 1);
    assert_eq!(ran.error(1), "stdin line 2: not valid UTF-8 (byte 5 of the line)");
}

#[test]
fn columns_and_labels_that_are_not_there() {
    let model = fixture("bert-classify-text");
    let (_folder, csv) = file("mine.csv", "text,label\na film,zero\nthe plot,five\n");
    let message = sparing(&["run", &model, "--file", &csv, "--text", "review"]).error(1);
    assert!(message.contains("no column \"review\" (there are: text, label)"), "{message}");
    let message = sparing(&["eval", &model, "--data", &csv, "--label", "stars"]).error(1);
    assert!(message.contains("no column \"stars\""), "{message}");
    let message = sparing(&["eval", &model, "--data", &csv]).error(1);
    assert!(message.contains("line 3") && message.contains("five") && message.contains("zero"), "{message}");
}

#[test]
fn texts_that_are_empty_or_endless() {
    let model = fixture("bert-classify-text");
    assert_eq!(sparing(&["run", &model, "", "--json"]).json_lines()[0]["tokens"], 2);
    assert_eq!(piped(&["run", &model], b"").ok(), "");
    let spaces = "a film ".repeat(150_000);
    let unbroken = "x".repeat(1_000_000);
    let ran = piped(&["run", &model, "--json"], format!("{spaces}\n{unbroken}\nshort\n").as_bytes());
    assert_eq!(ran.err.matches("was cut to").count(), 1, "{}", ran.err);
    let lines = ran.json_lines();
    assert_eq!((&lines[0]["truncated"], &lines[0]["tokens"]), (&true.into(), &40.into()));
    assert!(lines[2]["truncated"].is_null());
    assert!(sparing(&["run", &fixture("gpt2-causal-text"), ""]).error(1).contains("text 1"));
    let context = "the film is good . ".repeat(60_000);
    let (_folder, path) = file("long.txt", context);
    let args = ["run", &fixture("bert-answer-text"), "is it good", "--context-file", &path, "--json"];
    assert!(sparing(&args).json_lines()[0]["windows"].as_u64().unwrap() > 1000);
}

#[test]
fn heads_get_what_they_need() {
    assert!(sparing(&["run", &fixture("bert-mlm-text"), "no gap"]).error(1).contains("[MASK]"));
    assert!(sparing(&["run", &fixture("bert-answer-text"), "who?"]).error(2).contains("--context"));
    assert!(sparing(&["run", &fixture("bert-classify-text"), "x", "--context", "y"]).error(2).contains("--context"));
    assert!(sparing(&["run", &fixture("gpt2-causal-text"), "x", "--pair", "y"]).error(2).contains("--pair"));
    assert!(sparing(&["eval", &fixture("bert-mlm-text"), "--task", "sst2"]).error(1).contains("sst2"));
    assert!(sparing(&["eval", &fixture("bert-classify-text"), "--task", "rte"]).error(1).contains("--data"));
    let message = sparing(&["bench", &fixture("bert-classify-text"), "--length", "4000"]).error(2);
    assert!(message.contains("at most 40 tokens"), "{message}");
    assert!(sparing(&["run", &fixture("bert-classify-text"), "x", "--max-tokens", "2"]).error(1).contains("2 tokens"));
}

#[test]
fn flags_that_make_no_sense() {
    let model = fixture("bert-classify-text");
    let usage = |args: &[&str], what: &str| {
        let ran = sparing(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.err.contains(what), "{args:?}: {}", ran.err);
    };
    usage(&["fly"], "fly");
    usage(&["run", &model, "x", "--precision", "int3"], "int3");
    usage(&["run", &model, "x", "--threads", "many"], "--threads");
    let many = sparing(&["run", &model, "x", "--threads", "99999"]);
    assert!(many.code == 0 && many.err.contains("--threads 99999: this machine has"), "{}", many.err);
    usage(&["run", &model, "x", "--top", "0"], "--top");
    usage(&["run", &model, "x", "--temperature", "-1"], "--temperature");
    usage(&["run", &model, "x", "--top-p", "0"], "--top-p");
    usage(&["run", &model, "x", "--file", "y"], "--file");
    usage(&["run", &model, "x", "--text", "y"], "--file");
    usage(&["eval", &model, "--task", "chess"], "no task is called");
    usage(&["eval", &model], "--task");
    usage(&["eval", &model, "--task", "sst2", "--split", "noon"], "noon");
    usage(&["bench", &model, "--batch", "1,,2"], "--batch");
    usage(&["bench", &model, "--length", "0"], "--length");
    usage(&["bench", &model, "--batch", "1,1000000000", "--length", "8"], "--batch 1000000000");
    usage(&["bench", "--shape", "minilm-l6", "--batch", "18446744073709551615"], "--batch");
    usage(&["bench", &model, "-o", "xml"], "xml");
    usage(&["bench", "--shape", "t-rex"], "t-rex");
    usage(&["inspect", &model, "--shape", "minilm-l6"], "--shape");
    usage(&["completions", "cobol"], "cobol");
}

#[test]
fn an_instruction_set_that_is_not_there() {
    let mut unknown = command(&["run", &fixture("bert-classify-text"), "x"]);
    unknown.env("SPARING_ISA", "quantum");
    assert!(finish(unknown, &[]).error(1).starts_with("SPARING_ISA=quantum: unknown"));
    let mut portable = command(&["run", &fixture("bert-classify-text"), "x"]);
    portable.env("SPARING_ISA", "portable");
    finish(portable, &[]).ok();
}

#[test]
fn what_cannot_be_written() {
    let model = fixture("bert-classify-text");
    let (_folder, csv) = file("mine.csv", "text,label\na film,zero\n");
    let message = sparing(&["eval", &model, "--data", &csv, "--predictions", "no/such/folder/p.jsonl"]).error(1);
    assert!(message.contains("no/such/folder/p.jsonl: cannot be written"), "{message}");
    let message =
        sparing(&["inspect", &model, "--length", "4", "--repeats", "1", "--svg", "no/such/folder/p.svg"]).error(1);
    assert!(message.contains("cannot be written"), "{message}");
}
