// What the host of this process is, and the memory that a process may still take there.
#ifndef TANDEM_COMMON_PROBE_HOST_REPORT_H_
#define TANDEM_COMMON_PROBE_HOST_REPORT_H_

#include "tandem/diagnostics/v1/diagnostics_service.pb.h"

namespace tandem::probe {

// has_nccl is left false: it is the process that knows. What the system does not tell is 0 or
// empty.
diagnostics::v1::HostReport DescribeHost();

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_HOST_REPORT_H_
