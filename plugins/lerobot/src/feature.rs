//! Features: the columns of a dataset, as `info.json` declares them and as Parquet stores them.
//! Reads no rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The columns that every dataset has.
pub(crate) const TIMESTAMP: &str = "timestamp";
pub(crate) const FRAME_INDEX: &str = "frame_index";
pub(crate) const EPISODE_INDEX: &str = "episode_index";
pub(crate) const INDEX: &str = "index";
pub(crate) const TASK_INDEX: &str = "task_index";

/// The text that a loaded frame has beside its features.
pub(crate) const TASK: &str = "task";

/// Names that no feature of a log may have.
pub(crate) const RESERVED: [&str; 6] =
    [TIMESTAMP, FRAME_INDEX, EPISODE_INDEX, INDEX, TASK_INDEX, TASK];

/// The key of a field's metadata with the shape and the names of axes that its dataset declares.
const AXES: &str = "lerobot.axes";

/// The key of a channel's metadata with the robot type of its dataset.
pub(crate) const ROBOT_TYPE: &str = "lerobot.robot_type";

/// The key of a channel's metadata with the keys of the description of its dataset that rows do
/// not carry.
pub(crate) const UNCOPIED: &str = "lerobot.uncopied";

/// The most dimensions of a feature.
pub(crate) const MAX_DIMENSIONS: usize = 5;

/// The most numbers in one value of a feature.
pub(crate) const MAX_VALUES: usize = 1 << 20;

/// What a feature's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureType {
    Number(NumberType),
    Text,
    Image,
}

impl FeatureType {
    /// The names of axes that nobody has chosen.
    pub(crate) fn axis_names(self) -> Value {
        match self {
            Self::Image => json!(["height", "width", "channels"]),
            Self::Number(_) | Self::Text => Value::Null,
        }
    }
}

/// Types of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NumberType {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float32,
    Float64,
}

impl NumberType {
    const ALL: [Self; 11] = [
        Self::Bool,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Float32,
        Self::Float64,
    ];

    /// The Arrow type.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Uint8 => DataType::UInt8,
            Self::Uint16 => DataType::UInt16,
            Self::Uint32 => DataType::UInt32,
            Self::Uint64 => DataType::UInt64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
        }
    }

    /// The name in `info.json`, which is NumPy's.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint8 => "uint8",
            Self::Uint16 => "uint16",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
        }
    }

    /// The type that holds every value of an Arrow type; `None` if that is no number.
    pub(crate) fn holding(data_type: &DataType) -> Option<Self> {
        if *data_type == DataType::Float16 {
            return Some(Self::Float32);
        }
        Self::ALL.into_iter().find(|one| one.data_type() == *data_type)
    }
}

/// A column of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    pub(crate) name: String,
    pub(crate) feature_type: FeatureType,
    /// `[1]` for one value; height, width and channels for an image.
    pub(crate) shape: Vec<usize>,
    /// The names of its axes: a list, a table of lists, or null.
    pub(crate) names: Value,
}

impl Feature {
    /// The features that every dataset has, in their order.
    pub(crate) fn default_features() -> [Self; 5] {
        let one = |name: &str, number| Self {
            name: name.to_owned(),
            feature_type: FeatureType::Number(number),
            shape: vec![1],
            names: Value::Null,
        };
        [
            one(TIMESTAMP, NumberType::Float32),
            one(FRAME_INDEX, NumberType::Int64),
            one(EPISODE_INDEX, NumberType::Int64),
            one(INDEX, NumberType::Int64),
            one(TASK_INDEX, NumberType::Int64),
        ]
    }

    /// How many numbers a value has.
    pub(crate) fn width(&self) -> usize {
        self.shape.iter().product()
    }

    /// What `info.json` calls its type.
    pub(crate) fn dtype(&self) -> &'static str {
        match self.feature_type {
            FeatureType::Number(number) => number.name(),
            FeatureType::Text => "string",
            FeatureType::Image => "image",
        }
    }

    /// Its axes as metadata of a field of rows; none if they have no names.
    pub(crate) fn axes_metadata(&self) -> HashMap<String, String> {
        let Self { shape, names, .. } = self;
        let axes = json!({ "shape": shape, "names": names });
        let named = (!names.is_null()).then(|| (AXES.to_owned(), axes.to_string()));
        named.into_iter().collect()
    }

    /// Its entry in `info.json`.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "dtype": self.dtype(), "shape": self.shape, "names": self.names })
    }

    /// Reads an entry of `info.json`. `Err` says what is wrong with it.
    pub(crate) fn from_json(name: &str, entry: &Value) -> Result<Self, String> {
        let dtype = entry.get("dtype").and_then(Value::as_str).unwrap_or_default();
        let feature_type = match dtype {
            "string" => FeatureType::Text,
            "image" => FeatureType::Image,
            "video" => {
                return Err(format!(
                    "the frames of `{name}` are in videos, which are not read or written here; \
                     convert it with LeRobot to a dataset of images first"
                ));
            }
            other => {
                let number = NumberType::ALL.into_iter().find(|number| number.name() == other);
                let number = number.ok_or_else(|| {
                    format!("`{name}` has the dtype `{other}`, which is not known here")
                })?;
                FeatureType::Number(number)
            }
        };
        let shape = entry.get("shape").and_then(Value::as_array);
        let shape = shape.and_then(|shape| shape.iter().map(dimension).collect::<Option<Vec<_>>>());
        let wrong = || format!("`{name}` has the shape {}", entry["shape"]);
        let shape = shape.filter(|shape| (1..=MAX_DIMENSIONS).contains(&shape.len()));
        let shape = shape.ok_or_else(wrong)?;
        let values = shape.iter().try_fold(1usize, |all, one| all.checked_mul(*one));
        let is_image = feature_type == FeatureType::Image;
        if !is_image && values.is_none_or(|values| values > MAX_VALUES)
            || is_image && shape.len() != 3
            || feature_type == FeatureType::Text && shape != [1]
        {
            return Err(wrong());
        }
        let names = entry.get("names").cloned().unwrap_or_default();
        Ok(Self { name: name.to_owned(), feature_type, shape, names })
    }

    /// The type of its column in a data file.
    pub(crate) fn field(&self) -> Field {
        let data_type = match self.feature_type {
            FeatureType::Text => DataType::Utf8,
            FeatureType::Image => DataType::Struct(image_members()),
            FeatureType::Number(number) => match &*self.shape {
                [1] => number.data_type(),
                [len] => DataType::FixedSizeList(element(number.data_type()), *len as i32),
                shape => {
                    shape.iter().fold(number.data_type(), |inner, _| DataType::List(element(inner)))
                }
            },
        };
        Field::new(&self.name, data_type, true)
    }

    /// What the library `datasets` calls its type.
    fn to_datasets(&self) -> Value {
        let value = |dtype: &str| json!({ "dtype": dtype, "_type": "Value" });
        match (self.feature_type, &*self.shape) {
            (FeatureType::Image, _) => json!({ "_type": "Image" }),
            (_, [1]) => value(self.dtype()),
            (_, [len]) => {
                json!({ "feature": value(self.dtype()), "length": len, "_type": "List" })
            }
            (_, shape) => json!({
                "shape": shape,
                "dtype": self.dtype(),
                "_type": format!("Array{}D", shape.len()),
            }),
        }
    }
}

/// The names of axes that the metadata of a field declares, if values of this shape have them.
pub(crate) fn axis_names(metadata: &HashMap<String, String>, shape: &[usize]) -> Option<Value> {
    let axes: Value = serde_json::from_str(metadata.get(AXES)?).ok()?;
    axes.get("names").filter(|_| axes["shape"] == json!(shape)).cloned()
}

fn dimension(value: &Value) -> Option<usize> {
    let len = value.as_u64().filter(|len| (1..=i32::MAX as u64).contains(len))?;
    usize::try_from(len).ok()
}

/// The items of a list, as the reference writer calls them.
pub(crate) fn element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("element", data_type, true))
}

/// The members of an image: a whole file, and where it came from.
pub(crate) fn image_members() -> Fields {
    Fields::from(vec![
        Field::new("bytes", DataType::Binary, true),
        Field::new("path", DataType::Utf8, true),
    ])
}

/// The features as an object of `info.json`.
pub(crate) fn to_json(features: &[Feature]) -> Value {
    let each = features.iter().map(|feature| (feature.name.clone(), feature.to_json()));
    Value::Object(each.collect::<Map<_, _>>())
}

/// What the library `datasets` reads the columns by, as text of the schema's metadata.
pub(crate) fn datasets_metadata(features: &[Feature]) -> String {
    let each = features.iter().map(|feature| (feature.name.clone(), feature.to_datasets()));
    let each = Value::Object(each.collect::<Map<_, _>>());
    let hash = blake3::hash(each.to_string().as_bytes()).to_hex();
    let fingerprint = hash.get(..16).unwrap_or_default();
    json!({ "info": { "features": each }, "fingerprint": fingerprint }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(dtype: &str, shape: &[usize]) -> Feature {
        Feature::from_json("f", &json!({ "dtype": dtype, "shape": shape, "names": null })).unwrap()
    }

    #[test]
    fn columns_have_the_types_of_the_reference_writer() {
        let data_type = |dtype, shape: &[usize]| feature(dtype, shape).field().data_type().clone();
        assert_eq!(data_type("float64", &[1]), DataType::Float64);
        let list = DataType::FixedSizeList(element(DataType::Float32), 3);
        assert_eq!(data_type("float32", &[3]), list);
        let nested = DataType::List(element(DataType::List(element(DataType::UInt8))));
        assert_eq!(data_type("uint8", &[2, 4]), nested);
        assert_eq!(data_type("image", &[4, 6, 3]), DataType::Struct(image_members()));
    }

    #[test]
    fn the_metadata_of_datasets_names_every_kind_of_column() {
        let all =
            [("float32", &[1][..]), ("int64", &[3]), ("uint8", &[2, 4]), ("image", &[4, 6, 3])];
        let found: Vec<Value> =
            all.map(|(dtype, shape)| feature(dtype, shape).to_datasets()).into();
        let expected = [
            json!({ "dtype": "float32", "_type": "Value" }),
            json!({ "feature": { "dtype": "int64", "_type": "Value" }, "length": 3, "_type": "List" }),
            json!({ "shape": [2, 4], "dtype": "uint8", "_type": "Array2D" }),
            json!({ "_type": "Image" }),
        ];
        assert_eq!(found, expected);
        let text: Value =
            serde_json::from_str(&datasets_metadata(&[feature("bool", &[1])])).unwrap();
        assert_eq!(text["fingerprint"].as_str().unwrap().len(), 16);
    }

    #[test]
    fn entries_that_cannot_be_columns_are_refused() {
        let refusal = |entry: Value| Feature::from_json("f", &entry).unwrap_err();
        assert!(refusal(json!({ "dtype": "video", "shape": [4, 6, 3] })).contains("videos"));
        assert!(refusal(json!({ "dtype": "complex64", "shape": [1] })).contains("complex64"));
        for shape in [json!([]), json!([0]), json!([-1]), json!([1, 1, 1, 1, 1, 1]), json!(null)] {
            assert!(refusal(json!({ "dtype": "int8", "shape": shape })).contains("shape"));
        }
        let huge = json!({ "dtype": "int8", "shape": [2_000_000_000u64, 2_000_000_000u64] });
        assert!(refusal(huge).contains("shape"));
        assert!(refusal(json!({ "dtype": "image", "shape": [4, 6] })).contains("shape"));
    }
}
