// What the usage examples in common/device leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_DEVICE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_DEVICE_H_

#include <memory>
#include <string>

#include "common/comm/process_group.h"

namespace tandem::device::device_example {
extern at::Tensor tensor;
}  // namespace tandem::device::device_example

namespace tandem::device::side_stream_example {
extern std::shared_ptr<Device> device;
extern comm::ProcessGroup& group;
extern at::Tensor gradients;
extern comm::ReduceOp op;
extern std::string tag;
extern comm::ProcessGroup::WorkOr work;
}  // namespace tandem::device::side_stream_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_DEVICE_H_
