// For the usage examples of all headers: what `...` stands for, and the names that many share.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_NAMES_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_NAMES_H_

#include <string>

#include "common/status/status_macros.h"

namespace tandem::header_examples {

// `...` as an expression: a value of whatever type is needed.
struct Any {
  template <typename T>
  operator T() const;
};

// What an example returns: a status, or anything else.
struct Result {
  template <typename T>
  Result(T&& value);
};

// A function of the reader's own, such as Use(), which takes anything.
struct AnyFunction {
  template <typename... Args>
  void operator()(Args&&... args) const;
};

extern const std::string path, folder, run_dir;

}  // namespace tandem::header_examples

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_NAMES_H_
