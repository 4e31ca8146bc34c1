//! Which fields of rows become which features. Reads no values.

use std::collections::HashMap;
use std::sync::LazyLock;

use arrow_schema::{DataType, Field, Fields, Schema};
use sluice_kit::suggestion::nearest_of;
use sluice_model::field::PathStep;
use sluice_model::raw::is_raw;
use sluice_model::{Error, FieldPath};
use sluice_views::{ImageFields, Scalar, ViewMap, maps};

use super::options::{FeatureMap, check_name};
use crate::feature::{NumberType, TASK};

/// The field by which episodes are told apart.
pub(super) const EPISODE: &str = "episode";

/// What built-in types say of their pictures.
static PICTURES: LazyLock<Vec<ViewMap>> = LazyLock::new(|| {
    let all = maps(Vec::new(), true).unwrap_or_default();
    all.into_iter().filter(|map| map.image.is_some()).collect()
});

/// A feature and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct PlannedFeature {
    pub(super) name: String,
    pub(super) field: FieldPath,
    /// Its fields, if it is an image whose pixels may be raw.
    pub(super) image: Option<ImageFields>,
    pub(super) dtype: Option<NumberType>,
    /// The names of its axes, as chosen.
    pub(super) names: Option<Vec<String>>,
    /// What a dataset that was read declares of the field.
    pub(super) metadata: HashMap<String, String>,
}

/// The features of rows with these columns. `channel` and `type_name` are those of their messages.
pub(super) fn plan(
    chosen: Option<&FeatureMap>,
    schema: &Schema,
    channel: &str,
    type_name: &str,
) -> Result<Vec<PlannedFeature>, Error> {
    let Some(FeatureMap(chosen)) = chosen else {
        let mut planned = Vec::new();
        let own = |field: &&std::sync::Arc<Field>| {
            !is_raw(field) && field.name() != EPISODE && field.name() != TASK
        };
        let fits = |map: &&ViewMap| map.is_for(channel, type_name);
        let picture = PICTURES.iter().find(fits).and_then(|map| map.image.as_ref());
        for field in schema.fields().iter().filter(own) {
            let path = FieldPath::column(field.name().as_str());
            push_field(field.name().clone(), path, field, picture, &mut planned);
        }
        let mut seen = HashMap::new();
        for PlannedFeature { name, field, .. } in &planned {
            check_name(name).map_err(Error::invalid)?;
            if let Some(other) = seen.insert(name, field) {
                return Err(Error::invalid(format!(
                    "the fields {other} and {field} would be two features called `{name}` (a dot \
                     leads to a member of a structure, unless it is in backquotes): choose the \
                     features with `features`, and name one of them otherwise there"
                )));
            }
        }
        return Ok(planned);
    };
    let each = chosen.iter().map(|(name, options)| {
        let data = options.image.as_ref().map(|image| image.data.clone());
        let field = data.or_else(|| options.field.clone());
        let field = field.unwrap_or_else(|| FieldPath::column(name.as_str()));
        let column = field_at(&field, schema);
        Ok(PlannedFeature {
            name: name.clone(),
            image: options.image.clone().or_else(|| {
                let DataType::Struct(members) = column?.data_type() else { return None };
                struct_picture(&field, members)
            }),
            metadata: column.map(|column| column.metadata().clone()).unwrap_or_default(),
            field,
            dtype: options.dtype,
            names: options.names.clone(),
        })
    });
    each.collect()
}

/// Adds a field, or each member of a struct that is no picture.
fn push_field(
    name: String,
    path: FieldPath,
    field: &Field,
    picture: Option<&ImageFields>,
    planned: &mut Vec<PlannedFeature>,
) {
    let image = match field.data_type() {
        DataType::Struct(members) => match struct_picture(&path, members) {
            None => {
                for member in members {
                    let path = path.then(PathStep::Name(member.name().as_str().into()));
                    push_field(format!("{name}.{}", member.name()), path, member, picture, planned);
                }
                return;
            }
            picture => picture,
        },
        _ => picture.filter(|picture| picture.data == path).cloned(),
    };
    let metadata = field.metadata().clone();
    planned.push(PlannedFeature { name, field: path, image, dtype: None, names: None, metadata });
}

/// The field that a path of names leads to.
fn field_at<'s>(path: &FieldPath, schema: &'s Schema) -> Option<&'s Field> {
    let mut names = path.members()?.into_iter();
    let mut field = schema.field_with_name(names.next()?).ok()?;
    for name in names {
        let DataType::Struct(members) = field.data_type() else { return None };
        field = members.find(name)?.1;
    }
    Some(field)
}

/// The fields of a struct that has the bytes of a picture, and its width and height.
fn struct_picture(path: &FieldPath, members: &Fields) -> Option<ImageFields> {
    let member = |names: &[&str], fits: fn(&DataType) -> bool| {
        let found = names.iter().find_map(|name| members.find(name)).map(|(_, field)| field);
        let found = found.filter(|field| fits(field.data_type()))?;
        Some(path.then(PathStep::Name(found.name().as_str().into())))
    };
    let is_binary = |data_type: &DataType| {
        use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
        matches!(data_type, Binary | BinaryView | FixedSizeBinary(_) | LargeBinary)
    };
    let size = |names: &[&str]| member(names, DataType::is_integer).map(Scalar::Field);
    Some(ImageFields {
        data: member(&["data", "image"], is_binary)?,
        width: Some(size(&["width"])?),
        height: Some(size(&["height"])?),
        step: size(&["step", "stride", "row_stride"]),
        encoding: None,
        encoding_field: member(&["encoding", "pixelformat", "format"], |_| true),
    })
}

/// The error for a field that rows do not have.
pub(super) fn missing_field(path: &FieldPath, schema: &Schema) -> Error {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let text = path.to_string();
    let dotted = names.iter().filter(|name| name.contains('.')).find_map(|name| {
        let rest = text.strip_prefix(name)?;
        let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
        is_whole.then(|| format!("{}{rest}", FieldPath::column(*name)))
    });
    if let Some(dotted) = dotted {
        return Error::invalid(format!(
            "{}, but one with dots in its name: put the name in backquotes in `features`: \
             \"{dotted}\"",
            super::options::note_of_missing(path)
        ));
    }
    let near: Vec<String> = nearest_of(&text, names.iter().copied(), 3)
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let advice = match near.is_empty() {
        true => format!("they have {}", names.join(", ")),
        false => format!("similar: {}", near.join(", ")),
    };
    Error::invalid(format!("{}; {advice}", super::options::note_of_missing(path)))
}
