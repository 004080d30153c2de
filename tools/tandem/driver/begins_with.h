// Whether a list begins with another.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_BEGINS_WITH_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_BEGINS_WITH_H_

#include <algorithm>

namespace tandem::driver {

template <typename List, typename Beginning>
bool BeginsWith(const List& list, const Beginning& beginning) {
  return std::mismatch(beginning.begin(), beginning.end(), list.begin(), list.end()).first ==
         beginning.end();
}

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_BEGINS_WITH_H_
