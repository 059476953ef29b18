"""A call of ``matmul``: request, layout, dispatch, launch, staging."""
