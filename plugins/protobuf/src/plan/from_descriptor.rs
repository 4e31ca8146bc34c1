//! The plan of a message that a descriptor declares.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use sluice_kit::columns::ENUM;

use super::{ColumnBudget, FieldPlan, MessagePlan, Presence, Scalar, Storage, ValuePlan};
use crate::descriptor::{DescriptorSet, FieldDescriptor, FieldLabel, MESSAGE_TYPE};

/// The plan of the message of this full name. `Err` says why it has none.
///
/// A message inside itself is not expanded: it stays bytes.
pub(crate) fn compile_message(set: &DescriptorSet, name: &str) -> Result<MessagePlan, String> {
    let mut compiler = Compiler { set, open: Vec::new(), budget: ColumnBudget::default() };
    compiler.message(name)
}

struct Compiler<'s> {
    set: &'s DescriptorSet,
    /// The messages around the current one.
    open: Vec<String>,
    budget: ColumnBudget,
}

impl Compiler<'_> {
    fn message(&mut self, name: &str) -> Result<MessagePlan, String> {
        let declared = self.set.messages.get(name);
        let declared = declared.ok_or_else(|| format!("no message `{name}` is declared"))?;
        self.open.push(name.to_owned());
        let mut fields: Vec<&FieldDescriptor> = declared.fields.iter().collect();
        fields.sort_by_key(|field| field.number);
        let (mut names, mut sizes) = (HashSet::new(), HashMap::<u64, usize>::new());
        for field in &fields {
            if !names.insert(field.name.as_str()) {
                return Err(format!("`{name}` declares `{}` twice", field.name));
            }
            if let Some(oneof) = field.oneof {
                *sizes.entry(oneof).or_default() += 1;
            }
        }
        if let Some(pair) = fields.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(format!("`{name}` gives two fields the number {}", pair[0].number));
        }
        let is_map_entry = declared.is_map_entry;
        let mut plan = MessagePlan { is_map_entry, ..MessagePlan::default() };
        let mut oneofs: HashMap<u64, usize> = HashMap::new();
        for field in fields {
            let mut compiled = self
                .field(field, is_map_entry)
                .map_err(|reason| format!("{}: {reason}", field.name))?;
            // A oneof of a single member is how proto3 declares `optional`.
            if let Some(oneof) = field.oneof.filter(|oneof| sizes.get(oneof) > Some(&1)) {
                // Rows of a list, or of a member of a map, always have a value.
                if compiled.presence != Presence::Optional {
                    return Err(format!("{}: it cannot be a member of a oneof", field.name));
                }
                let next = oneofs.len();
                compiled.oneof = Some(*oneofs.entry(oneof).or_insert(next));
            }
            plan.fields.push(compiled);
        }
        plan.oneofs = oneofs.len();
        self.open.pop();
        Ok(plan)
    }

    fn field(&mut self, field: &FieldDescriptor, in_entry: bool) -> Result<FieldPlan, String> {
        self.budget.spend(self.open.len())?;
        if field.is_delimited {
            return Err("groups are not supported".to_owned());
        }
        let value = self.value(field)?;
        let is_list = field.label == FieldLabel::Repeated;
        let has_presence = field.has_presence || matches!(value, ValuePlan::Message(_));
        let presence = match () {
            () if is_list => {
                let is_packable = matches!(&value, ValuePlan::Scalar(of, _) if of.is_packable());
                Presence::List { is_packed: field.is_packed && is_packable, len: None }
            }
            () if in_entry => Presence::Always,
            () if has_presence || field.kind == MESSAGE_TYPE => Presence::Optional,
            () => Presence::Implicit,
        };
        let data_type = match &value {
            ValuePlan::Scalar(_, storage) => storage.data_type(),
            ValuePlan::Message(plan) => DataType::Struct(plan.schema().fields().clone()),
            ValuePlan::Wrapper(inner) => inner.column.data_type().clone(),
        };
        let data_type = match is_list {
            true => DataType::List(Arc::new(Field::new("item", data_type, false))),
            false => data_type,
        };
        let is_nullable = presence == Presence::Optional;
        let column = self.with_names(Field::new(&field.name, data_type, is_nullable), field);
        let identity = (field.name.clone(), field.number);
        Ok(FieldPlan::new(identity, presence, value, column))
    }

    fn value(&mut self, field: &FieldDescriptor) -> Result<ValuePlan, String> {
        if field.kind != MESSAGE_TYPE {
            let scalar = Scalar::from_type(field.kind);
            let scalar = scalar.ok_or_else(|| format!("unknown type {}", field.kind))?;
            return Ok(ValuePlan::Scalar(scalar, scalar.storage()));
        }
        if self.open.contains(&field.type_name) {
            return Ok(ValuePlan::Scalar(Scalar::Bytes, Storage::Bytes));
        }
        self.message(&field.type_name).map(ValuePlan::Message)
    }

    /// A column, with the names of its values if it is an enum.
    fn with_names(&self, column: Field, field: &FieldDescriptor) -> FieldRef {
        let names = self.set.enums.get(&field.type_name);
        let Some(names) = names.filter(|_| field.kind == Scalar::Enum.type_number()) else {
            return Arc::new(column);
        };
        let all: serde_json::Map<_, _> =
            names.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
        let names = serde_json::Value::from(all).to_string();
        Arc::new(column.with_metadata(HashMap::from([(ENUM.to_owned(), names)])))
    }
}
