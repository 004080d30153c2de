# TANDEM_SANITIZER=address (with UndefinedBehaviorSanitizer) or thread instruments all our code and
# links into each program the file of tools/sanitizer that sets options and suppressions.
if(TANDEM_SANITIZER)
  add_compile_options(-fsanitize=${TANDEM_SANITIZER} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TANDEM_SANITIZER})
  if(TANDEM_SANITIZER STREQUAL "address")
    add_compile_options(-fsanitize=undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
    add_link_options(-fsanitize=undefined)
  elseif(TANDEM_SANITIZER STREQUAL "thread")
    foreach(function
        Mutex4LockEv Mutex6UnlockEv Mutex7TryLockEv MutexD1Ev Mutex5AwaitERKNS0_9ConditionE
        Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
        Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE)
      add_link_options(-Wl,--wrap=_ZN4absl7debian35${function})
    endforeach()
    add_link_options(
      -Wl,--wrap=_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE
      -Wl,--wrap=_ZN4absl7debian312Notification6NotifyEv
      -Wl,--wrap=_ZNK4absl7debian312Notification19WaitForNotificationEv
      -Wl,--wrap=_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE
      -Wl,--wrap=GOMP_parallel)
  endif()
  add_library(tandem_sanitizer OBJECT ${CMAKE_SOURCE_DIR}/tools/sanitizer/${TANDEM_SANITIZER}.cc)
endif()
