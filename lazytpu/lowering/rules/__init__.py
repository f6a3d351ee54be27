"""The lowering rules, a module a family; each rule's source is the ATen op it names."""
