#include "common/model/parameter.h"

#include <utility>

namespace tandem::model {

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

Segment Whole(std::string name, std::vector<int64_t> shape) {
  Segment segment;
  segment.name = std::move(name);
  segment.global_shape = shape;
  segment.start.assign(shape.size(), 0);
  segment.numel = NumElements(shape);
  segment.shape = std::move(shape);
  return segment;
}

Segment Part(std::string name, std::vector<int64_t> shape, int dim, Range part) {
  Segment segment = Whole(std::move(name), std::move(shape));
  segment.start[dim] = part.begin;
  segment.shape[dim] = part.size();
  segment.numel = NumElements(segment.shape);
  return segment;
}

Segment Rows(std::string name, std::vector<int64_t> shape, Range part) {
  return Part(std::move(name), std::move(shape), 0, part);
}

Parameter Stack(std::string name, std::vector<Segment> segments, ParameterRole role,
                Placement placement) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = segments[0].shape;
  parameter.shape[0] = 0;
  for (Segment& segment : segments) {
    segment.row = parameter.shape[0];
    parameter.shape[0] += segment.shape[0];
  }
  parameter.segments = std::move(segments);
  parameter.numel = NumElements(parameter.shape);
  parameter.role = role;
  parameter.tensor_parallel = placement;
  return parameter;
}

Parameter Single(Segment segment, ParameterRole role, Placement placement) {
  std::string name = segment.name;
  return Stack(std::move(name), {std::move(segment)}, role, placement);
}

}  // namespace tandem::model
