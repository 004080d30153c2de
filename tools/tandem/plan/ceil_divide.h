// CeilDivide(a, b): a / b, rounded up.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_CEIL_DIVIDE_H_
#define TANDEM_TOOLS_TANDEM_PLAN_CEIL_DIVIDE_H_

#include <cstdint>

namespace tandem::plan {

// a >= 0 and b > 0.
inline int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_CEIL_DIVIDE_H_
