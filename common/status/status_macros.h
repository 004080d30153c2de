// RETURN_IF_ERROR and ASSIGN_OR_RETURN: propagate errors in code that returns absl::Status.
//
//   absl::StatusOr<Model> Load(const std::string& path) {
//     ASSIGN_OR_RETURN(ModelSpec spec, ReadSpec(path));
//     RETURN_IF_ERROR(Validate(spec)) << "while loading " << path;   // adds to the message
//     return Model(spec);
//   }
#ifndef TANDEM_COMMON_STATUS_STATUS_MACROS_H_
#define TANDEM_COMMON_STATUS_STATUS_MACROS_H_

#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// A status about to be returned; text streamed into it is appended to the message. Keeps payloads
// (error details). Converts to Status and to any StatusOr.
class StatusBuilder {
 public:
  explicit StatusBuilder(absl::Status status) : status_(std::move(status)) {}

  template <typename T>
  StatusBuilder&& operator<<(const T& value) && {
    note_ << value;
    return std::move(*this);
  }

  operator absl::Status() && { return std::move(*this).Build(); }
  template <typename T>
  operator absl::StatusOr<T>() && {
    return std::move(*this).Build();
  }

 private:
  absl::Status Build() && {
    const std::string note = note_.str();
    if (note.empty()) return std::move(status_);
    absl::Status out(status_.code(), std::string(status_.message()) + "; " + note);
    status_.ForEachPayload(
        [&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
    return out;
  }

  absl::Status status_;
  std::ostringstream note_;
};

}  // namespace tandem

// The switch keeps a following `else` from binding to this macro's `if`, and silences compilers'
// dangling-else warnings.
#define RETURN_IF_ERROR(expression)                                        \
  switch (0)                                                               \
  case 0:                                                                  \
  default:                                                                 \
    if (absl::Status tandem_status_ = (expression); tandem_status_.ok()) { \
    } else /* NOLINT */                                                    \
      return ::tandem::StatusBuilder(std::move(tandem_status_))

#define TANDEM_CONCAT_INNER_(a, b) a##b
#define TANDEM_CONCAT_(a, b) TANDEM_CONCAT_INNER_(a, b)

#define ASSIGN_OR_RETURN(declaration, expression) \
  TANDEM_ASSIGN_OR_RETURN_(TANDEM_CONCAT_(tandem_status_or_, __LINE__), declaration, expression)
#define TANDEM_ASSIGN_OR_RETURN_(holder, declaration, expression)               \
  auto holder = (expression);                                                   \
  if (!holder.ok()) return ::tandem::StatusBuilder(std::move(holder).status()); \
  declaration = *std::move(holder)

#endif  // TANDEM_COMMON_STATUS_STATUS_MACROS_H_
