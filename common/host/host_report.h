// Describes this process's host and the memory that a process may still take there.
#ifndef TANDEM_COMMON_HOST_HOST_REPORT_H_
#define TANDEM_COMMON_HOST_HOST_REPORT_H_

#include "tandem/diagnostics/v1/diagnostics_service.pb.h"

namespace tandem::host {

// Leaves has_nccl false: the process itself knows it. Values that the system does not report are 0
// or empty.
diagnostics::v1::HostReport DescribeHost();

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_HOST_REPORT_H_
