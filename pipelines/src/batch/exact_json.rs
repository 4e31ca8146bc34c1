//! JSON that round-trips pipelines exactly: plugin kinds by name, floats bit for bit.

/// A plugin kind, by name.
pub(super) mod kind {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use sluice_model::PluginKind;

    const KINDS: [PluginKind; 3] = [PluginKind::Source, PluginKind::Stage, PluginKind::Sink];

    pub(in crate::batch) fn serialize<S: Serializer>(
        kind: &PluginKind,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(kind)
    }

    pub(in crate::batch) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<PluginKind, D::Error> {
        let name = String::deserialize(from)?;
        let kind = KINDS.into_iter().find(|kind| kind.to_string() == name);
        kind.ok_or_else(|| de::Error::custom(format!("unknown node kind `{name}`")))
    }
}

/// Options. A JSON reader may round floats, which would change the pipeline, so floats travel as
/// text. A one-letter prefix tells them from strings.
pub(super) mod exact {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use serde_json::{Number, Value};

    pub(in crate::batch) fn serialize<S: Serializer>(
        options: &Value,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        mark(options).serialize(to)
    }

    pub(in crate::batch) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Value, D::Error> {
        unmark(Value::deserialize(from)?).map_err(de::Error::custom)
    }

    fn mark(value: &Value) -> Value {
        match value {
            Value::Number(number) if number.is_f64() => format!("f{number}").into(),
            Value::String(text) => format!("s{text}").into(),
            Value::Array(list) => list.iter().map(mark).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), mark(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn unmark(value: Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => match text.split_at_checked(1) {
                Some(("s", text)) => text.into(),
                Some(("f", number)) => {
                    let number = number.parse().ok().and_then(Number::from_f64);
                    number.ok_or_else(|| format!("`{text}` is not a number"))?.into()
                }
                _ => return Err(format!("`{text}` has no type prefix")),
            },
            Value::Array(list) => list.into_iter().map(unmark).collect::<Result<_, _>>()?,
            Value::Object(fields) => {
                let each = fields.into_iter().map(|(key, value)| Ok((key, unmark(value)?)));
                each.collect::<Result<_, String>>()?
            }
            other => other,
        })
    }

    #[cfg(test)]
    mod tests {
        use proptest::prelude::*;
        use serde_json::json;

        use super::*;

        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Wrapper(#[serde(with = "super")] Value);

        fn back(value: &Value) -> Value {
            let text = serde_json::to_string(&Wrapper(value.clone())).unwrap();
            serde_json::from_str::<Wrapper>(&text).unwrap().0
        }

        proptest! {
            #[test]
            fn every_number_comes_back_to_the_last_bit(bits: u64) {
                let number = f64::from_bits(bits);
                prop_assume!(number.is_finite());
                prop_assert_eq!(back(&json!(number)).as_f64().map(f64::to_bits), Some(bits));
            }

            #[test]
            fn texts_come_back_whatever_they_look_like(text: String) {
                let value = json!({ "a": [&text, format!("f{text}")] });
                prop_assert_eq!(back(&value), value);
            }
        }

        #[test]
        fn what_is_not_marked_is_refused() {
            for wrong in ["[\"\"]", "[\"x\"]", "[\"fx\"]", "[\"fNaN\"]"] {
                serde_json::from_str::<Wrapper>(wrong).unwrap_err();
            }
            assert_eq!(
                back(&json!([1, -1, u64::MAX, true, null])),
                json!([1, -1, u64::MAX, true, null])
            );
        }
    }
}
