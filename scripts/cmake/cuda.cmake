# The CUDA backend is the .cu files of the kernels room.
#   ON        nvcc compiles them; no card is needed for that
#   AUTO      ON where there are both, an nvcc that can and a card; else OFF
#   EMULATED  OFF, and tests for which g++ compiles them against the emulator, whose headers of the
#             same names come before CUDA's and ours
if(NOT HYB_CUDA MATCHES "^(AUTO|ON|OFF|EMULATED)$")
  message(FATAL_ERROR "HYB_CUDA is AUTO, ON, OFF or EMULATED, not ${HYB_CUDA}")
endif()
set(cuda_version_min 12.4)
find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
set(nvcc_version 0)
if(NVCC)
  execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE nvcc_text)
  string(REGEX MATCH "release ([0-9.]+)" ignored "${nvcc_text}")
  set(nvcc_version ${CMAKE_MATCH_1})
endif()
set(HYB_CUDA_KIND ${HYB_CUDA})
if(HYB_CUDA STREQUAL "AUTO")
  set(HYB_CUDA_KIND OFF)
  if(NOT EXISTS /proc/driver/nvidia/version)
    message(STATUS "CUDA: off, this machine has no NVIDIA card (-DHYB_CUDA=ON builds it anyway)")
  elseif(nvcc_version VERSION_LESS cuda_version_min)
    message(WARNING "CUDA: off, hyb will leave this machine's card idle: no nvcc of CUDA "
      "${cuda_version_min} or later was found. Install the CUDA toolkit and configure again.")
  else()
    set(HYB_CUDA_KIND ON)
    message(STATUS "CUDA: on, nvcc ${nvcc_version} and an NVIDIA card were found")
  endif()
endif()
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS kernels/*.cu)
set(has_cuda true)
if(HYB_CUDA_KIND STREQUAL "ON")
  set(CMAKE_CUDA_COMPILER ${NVCC})
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
    if(EXISTS /proc/driver/nvidia/version)
      set(CMAKE_CUDA_ARCHITECTURES native)
    endif()
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has it
  find_package(CUDAToolkit ${cuda_version_min} REQUIRED)
  set_target_properties(hyb_kernels PROPERTIES
    CUDA_STANDARD 20 CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  target_sources(hyb_kernels PRIVATE ${cuda_sources})
  set(nvcc_options $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr
    -Xcompiler=-Wall,-Wextra,-Wno-restrict $<$<BOOL:${HYB_WERROR}>:-Werror=all-warnings>>)
  target_compile_options(hyb_kernels PRIVATE ${nvcc_options})
  target_link_libraries(hyb_kernels PUBLIC CUDA::cudart_static)
elseif(HYB_CUDA_KIND STREQUAL "EMULATED")
  # hyb and the libraries stay those of a build without a card. Programs that run on the emulated one
  # begin with the objects of emulated_*: they define again whatever has_cuda decides.
  set(has_cuda false)
  list(FILTER cuda_sources EXCLUDE REGEX "/cuda/driver\\.cu$")  # the emulator has a driver of its own
  file(GLOB emulator_sources CONFIGURE_DEPENDS
    tests/cuda_emulator/device/*.cpp tests/cuda_emulator/runtime/*.cpp)
  # Kernels read vectors where other types were written, as CUDA allows.
  set(emulated_options -Wno-unknown-pragmas -fno-strict-aliasing)
  set_source_files_properties(${cuda_sources} PROPERTIES
    LANGUAGE CXX COMPILE_OPTIONS "${emulated_options}")
  set_source_files_properties(${emulator_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_source_files_properties(tests/cuda_emulator/runtime/kernel_table.cpp PROPERTIES
    COMPILE_DEFINITIONS HYB_PTXAS_TABLE="${PROJECT_SOURCE_DIR}/kernels/cuda/ptxas.tsv")
  file(GLOB_RECURSE twice CONFIGURE_DEPENDS kernels/*.cpp)
  list(FILTER twice EXCLUDE REGEX "_avx[0-9]+\\.cpp$")  # the libraries' serve
  set(shadow ${PROJECT_SOURCE_DIR}/tests/cuda_emulator/shadow)
  # Compiles a target for the emulated card; what follows it are objects to link.
  function(emulate target)
    target_include_directories(${target} BEFORE PRIVATE ${shadow})
    target_compile_options(${target} PRIVATE -UHYB_HAS_CUDA -DHYB_HAS_CUDA=true)
    target_link_libraries(${target} PRIVATE hyb_kernels)
    foreach(objects IN LISTS ARGN)
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
    endforeach()
  endfunction()
  add_library(emulated_host OBJECT EXCLUDE_FROM_ALL ${twice} ${app_of_cards} ${emulator_sources})
  add_library(emulated_kernels OBJECT EXCLUDE_FROM_ALL ${cuda_sources})
  foreach(objects emulated_host emulated_kernels)
    emulate(${objects})
  endforeach()
  target_compile_options(emulated_host PRIVATE $<$<CONFIG:Release>:${optimization_kernels}>)
  # -O3 takes half as long again to compile and runs no test faster.
  target_compile_options(emulated_kernels PRIVATE $<$<CONFIG:Release>:-O2>)
else()
  set(has_cuda false)
endif()
target_compile_definitions(hyb_kernels PUBLIC HYB_HAS_CUDA=${has_cuda})
