//! The Open Inference Protocol, generation, the description of the API and the page, over real HTTP.

mod common;

use common::{Running, builtin, fixture, settings, start};
use serde_json::{Value, json};
use std::sync::OnceLock;

fn server() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| start(settings(vec![builtin(), fixture("gpt2-causal-text"), fixture("bert-answer-text")])))
}

#[test]
fn health_and_metadata_of_the_inference_protocol() {
    assert_eq!(server().get("/v2/health/live").json(200), json!({"live": true}));
    assert_eq!(server().get("/v2/health/ready").json(200), json!({"ready": true}));
    assert_eq!(server().get("/v2").json(200)["name"], "sparing");
    assert_eq!(server().get("/v2/models/builtin/ready").json(200)["ready"], true);
    let model = server().get("/v2/models/builtin").json(200);
    assert_eq!(model["outputs"][0]["datatype"], "FP32");
    let missing = server().get("/v2/models/none").json(404);
    assert!(missing["error"].as_str().unwrap().contains("none") && missing.get("error_type").is_none());
}

#[test]
fn tensors_go_in_and_come_out() {
    let infer = |body: Value| server().post("/v2/models/builtin/infer", &body);
    let tensor = |name: &str, datatype: &str, shape: Value, data: Value| json!({"name": name, "datatype": datatype, "shape": shape, "data": data});
    let text =
        infer(json!({"id": "7", "inputs": [tensor("text", "BYTES", json!([2]), json!(["wonderful", "a bore"]))]}))
            .json(200);
    assert_eq!((&text["id"], &text["model_name"]), (&json!("7"), &json!("builtin")));
    let output = &text["outputs"][0];
    assert_eq!((&output["shape"], output["data"].as_array().unwrap().len()), (&json!([2, 2]), 4));
    let raw = server().post("/predict", &json!({"inputs": "wonderful", "raw_scores": true})).json(200);
    let best = output["data"][1].as_f64().unwrap();
    assert!((raw[0]["score"].as_f64().unwrap() - best).abs() < 1e-4);
    // The same by ids, padded and masked as Python clients do it.
    let ids = json!([[101, 6919, 102, 0], [101, 1037, 8501, 102]]);
    let mask = json!([[1, 1, 1, 0], [1, 1, 1, 1]]);
    let inputs =
        [tensor("input_ids", "INT64", json!([2, 4]), ids), tensor("attention_mask", "INT64", json!([2, 4]), mask)];
    let by_ids = infer(json!({"inputs": inputs})).json(200);
    for (a, b) in by_ids["outputs"][0]["data"].as_array().unwrap().iter().zip(output["data"].as_array().unwrap()) {
        assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-4, "{by_ids} {text}");
    }
    let dialled = infer(
        json!({"inputs": [tensor("text", "BYTES", json!([1]), json!(["wonderful"]))], "parameters": {"sparing": {"precision": "int8"}}}),
    );
    assert_ne!(dialled.json(200)["outputs"][0]["data"][1], output["data"][1]);
    for (inputs, status) in [
        (json!([]), 422),
        (json!([tensor("text", "BYTES", json!([2]), json!(["a"]))]), 422),
        (json!([tensor("text", "FP32", json!([1]), json!([1.0]))]), 422),
        (json!([tensor("pixels", "FP32", json!([1]), json!([1.0]))]), 422),
        (json!([tensor("input_ids", "INT64", json!([4]), json!([1, 2, 3, 4]))]), 422),
        (json!([tensor("input_ids", "INT64", json!([1, 2]), json!([-1, 2]))]), 422),
        (json!([tensor("input_ids", "INT64", json!([u64::MAX, 2]), json!([1, 2]))]), 422),
        (json!([tensor("text", "BYTES", json!([0]), json!([]))]), 400),
        (json!([tensor("text", "BYTES", json!([33]), json!(vec!["a"; 33]))]), 413),
    ] {
        assert!(infer(json!({"inputs": inputs})).json(status)["error"].is_string());
    }
}

#[test]
fn heads_that_answer_per_token_give_a_tensor_of_three_axes() {
    let inputs = json!([
        {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["who", "who sat"]},
        {"name": "text_pair", "datatype": "BYTES", "shape": [2], "data": ["the cat sat on the mat", "the cat"]},
    ]);
    let answer = server().post("/v2/models/bert-answer-text/infer", &json!({"inputs": inputs})).json(200);
    let shape: Vec<usize> =
        answer["outputs"][0]["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    assert_eq!((shape.len(), shape[0], shape[2]), (3, 2, 2));
    assert_eq!(answer["outputs"][0]["data"].as_array().unwrap().len(), shape.iter().product::<usize>());
    server().post("/predict", &json!({"inputs": "a", "model": "bert-answer-text"})).refusal(424, "Backend");
}

#[test]
fn text_goes_on_whole_or_in_pieces() {
    let body = |stream: bool| json!({"inputs": "the", "model": "gpt2-causal-text", "stream": stream, "parameters": {"max_new_tokens": 5}});
    let whole = server().post("/generate", &body(false)).json(200);
    let reply = server().post("/generate", &body(true));
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    let events: Vec<Value> = reply
        .body
        .split("\n\n")
        .filter_map(|event| serde_json::from_str(event.trim().strip_prefix("data:")?).ok())
        .collect();
    let (last, tokens) = events.split_last().unwrap();
    assert_eq!(last["generated_text"], whole["generated_text"]);
    assert_eq!(last["details"], whole["details"]);
    assert_eq!(whole["details"]["generated_tokens"], tokens.len());
    let pieces: String = tokens.iter().map(|event| event["token"]["text"].as_str().unwrap()).collect();
    assert_eq!(json!(pieces), whole["generated_text"]);
    let streamed = server().post("/generate_stream", &body(false));
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));

    server().post("/generate", &json!({"inputs": "a"})).refusal(424, "Backend");
    for parameters in [json!({"temperature": -1}), json!({"top_p": 0}), json!({"max_new_tokens": 0})] {
        let body = json!({"inputs": "the", "model": "gpt2-causal-text", "parameters": parameters});
        server().post("/generate", &body).refusal(422, "Validation");
    }
    server().post("/generate", &json!({"inputs": "", "model": "gpt2-causal-text"})).refusal(400, "Empty");
}

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let document = server().get("/openapi.json").json(200);
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 15);
    for (path, methods) in paths {
        let real = path.replace("{model}", "builtin");
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
            let reply = match method.as_str() {
                "get" => server().get(&real),
                _ => {
                    let example = &operation["requestBody"]["content"]["application/json"]["example"];
                    server().post(&real, example)
                }
            };
            // What the examples get is an answer, or that this model is not made for it.
            let expected: &[u16] = if real == "/admin/reload" { &[403] } else { &[200, 424] };
            assert!(expected.contains(&reply.status), "{method} {path}: {} {}", reply.status, reply.body);
            let described = operation["responses"].as_object().unwrap();
            assert!(described.contains_key(&reply.status.to_string()), "{method} {path}: {}", reply.status);
        }
    }
    // References lead somewhere.
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    assert!(server().get("/docs").body.contains("/openapi.json"));
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    for path in ["/", "/page.css", "/page.js", "/docs"] {
        let reply = server().get(path);
        assert_eq!(reply.status, 200, "{path}");
        assert!(!reply.body.contains("http://") && !reply.body.contains("https://"), "{path}");
        assert!(reply.header("content-security-policy").unwrap().contains("default-src 'none'"));
    }
    server().get("/report").refusal(404, "NotFound");
}

#[test]
fn the_explanation_adds_up() {
    let explain = |dial: Value| {
        server().post("/explain", &json!({"text": "a gripping, funny film about nothing", "sparing": dial})).json(200)
    };
    let shares =
        |found: &Value, field: &str| -> Vec<Vec<f64>> { serde_json::from_value(found[field].clone()).unwrap() };
    let exact = explain(json!({}));
    assert!(shares(&exact, "layers").iter().flatten().all(|share| *share == 1.0));
    assert_eq!((&exact["same"], &exact["change"], &exact["flops"]), (&json!(true), &json!(0.0), &exact["flops_exact"]));
    let tokens = exact["tokens"].as_array().unwrap();
    assert_eq!((&tokens[0]["text"], &tokens[0]["special"]), (&json!("[CLS]"), &json!(true)));

    let dropped = explain(json!({"attention": "exact,drop=0.6"}));
    let layers = shares(&dropped, "layers");
    assert_eq!(layers.len(), 6);
    // The first token always stays; what left does not come back; something left.
    assert!(layers.iter().all(|layer| layer[0] == 1.0));
    assert!(layers.windows(2).all(|pair| pair[0].iter().zip(&pair[1]).all(|(a, b)| b <= a)));
    assert!(layers[5].contains(&0.0), "{layers:?}");
    assert!(dropped["flops"].as_u64() < dropped["flops_exact"].as_u64());

    let sampled = explain(json!({"attention": "mca:0.6"}));
    let values = shares(&sampled, "values");
    assert!(values.iter().flatten().all(|share| (0.0..=1.01).contains(share)));
    assert!(values.iter().flatten().any(|share| *share < 1.0));
    assert!(sampled["flops"].as_u64() < sampled["flops_exact"].as_u64());
    assert!(sampled["change"].as_f64().unwrap() > 0.0);
    server().post("/explain", &json!({"text": ""})).refusal(400, "Empty");
}
